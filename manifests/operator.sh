#!/bin/sh
# Prints the objects that `mczk install` creates for the operator: those of the chart, without the traces of Helm.
#
#   manifests/operator.sh HELM
set -eu
cd "$(dirname "$0")/../charts/mczk"
echo "# The operator, as \`mczk install\` creates it. Generated from charts/mczk by \`make manifests\`."
"$1" template mczk . --namespace mczk-system --skip-tests --set karmada.kubeconfigSecret.renew=true |
    sed -e '/^# Source: /d' -e '/^ *helm.sh\/chart: /d' -e 's|\(app.kubernetes.io/managed-by\): Helm|\1: mczk|'
