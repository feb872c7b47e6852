#!/bin/sh
# Signs the digests and the provenance of a release.
#
#   release/sign.sh FOLDER
#
# FOLDER then also holds:
#   SHA256SUMS.sigstore.json                  the signature of the digests, as a bundle of Sigstore
#   SHA256SUMS.sig                            the same signature alone, in base64
#   mczk-VERSION.provenance.sigstore.json     the provenance in a signed envelope
#
# The environment has the program COSIGN and VERSION. If it has the file KEY, cosign signs with that key and uses no network;
# COSIGN_PASSWORD opens the key. Otherwise cosign signs with the identity of the workflow that runs it.
set -eu
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sums=SHA256SUMS.sigstore.json
set -- --yes
if [ -n "${KEY:-}" ]; then
    # No service takes part: no transparency log, no authority for time, and no root of trust that cosign would fetch.
    echo '{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}' >"$work/services.json"
    echo '{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}' >"$work/roots.json"
    set -- "$@" --key "$KEY" --signing-config "$work/services.json" --trusted-root "$work/roots.json"
fi
"$COSIGN" sign-blob "$@" --bundle $sums SHA256SUMS >/dev/null
# It fails if the bundle has no signature. Text tools would copy the whole bundle then.
jq --raw-output --exit-status .messageSignature.signature $sums >SHA256SUMS.sig
"$COSIGN" attest-blob "$@" --statement "mczk-$VERSION.provenance.json" \
    --bundle "mczk-$VERSION.provenance.sigstore.json" >/dev/null
chmod 644 ./*
