{{- define "mczk.name" -}}
{{- $name := .Release.Name }}
{{- if not (contains "mczk" $name) }}{{ $name = printf "%s-mczk" $name }}{{ end }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "mczk.selector" -}}
app.kubernetes.io/name: mczk
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mczk.labels" -}}
{{ include "mczk.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "mczk.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
