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
