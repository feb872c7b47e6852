{{- define "mczk-agent.name" -}}
{{- $name := .Release.Name }}
{{- if not (contains "mczk-agent" $name) }}{{ $name = printf "%s-mczk-agent" $name }}{{ end }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "mczk-agent.selector" -}}
app.kubernetes.io/name: mczk-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mczk-agent.labels" -}}
{{ include "mczk-agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* What the agent does in the namespaces that it handles. */}}
{{- define "mczk-agent.rules" -}}
- apiGroups: [mczk.io]
  resources: [zookeepers]
  verbs: [patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: ['']
  resources: [pods]
  verbs: [list, watch, create, delete]
- apiGroups: ['']
  resources: [services, configmaps, serviceaccounts]
  verbs: [list, create, patch, delete]
# The agent never lists Secrets. It reads those that an ensemble names, and its own.
- apiGroups: ['']
  resources: [secrets]
  verbs: [get, create, patch, delete]
# StatefulSets create the volumes. The agent lists them, requests larger ones, and deletes the one that a user wants
# replaced. With `create` it asks whether a missing one would be accepted. StatefulSets make any claim for it anyway.
- apiGroups: ['']
  resources: [persistentvolumeclaims]
  verbs: [list, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, create, patch, delete]
# Only events name the volume or the network that a pod waits for.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, create, patch]
{{- end }}
