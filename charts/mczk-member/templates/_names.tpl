{{- define "mczk-member.name" -}}
{{- $name := .Release.Name }}
{{- if not (contains "mczk-member" $name) }}{{ $name = printf "%s-mczk-member" $name }}{{ end }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "mczk-member.selector" -}}
app.kubernetes.io/name: mczk-member
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mczk-member.labels" -}}
{{ include "mczk-member.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
