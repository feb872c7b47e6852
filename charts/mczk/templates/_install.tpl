{{/* The annotations of a hook of `mczk install`. Argument: a list of "pre", "post" or both. */}}
{{- define "mczk.installHook" -}}
{{- $events := list }}
{{- range $when := . }}
{{- range list "install" "upgrade" "rollback" }}{{ $events = append $events (printf "%s-%s" $when .) }}{{ end }}
{{- end -}}
helm.sh/hook: {{ join "," $events }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* A Job of `mczk install`. Arguments: root, the context; account; stage, its part; when, "pre" or "post". */}}
{{- define "mczk.installJob" -}}
{{- $stage := .stage }}
{{- $account := .account }}
{{- $when := .when }}
{{- with .root -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "mczk.name" . }}-{{ $stage }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "mczk.labels" . | nindent 4 }}
  annotations: {{- include "mczk.installHook" (list $when) | nindent 4 }}
    helm.sh/hook-weight: "0"
spec:
  backoffLimit: 3
  # Each hook waits once: for the certificate, or for the operator. The rest is for images and repetitions.
  activeDeadlineSeconds: {{ add 360 (int .Values.install.waitSeconds) }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: mczk-install
        app.kubernetes.io/instance: {{ .Release.Name }}
    spec:
      serviceAccountName: {{ $account }}
      restartPolicy: Never
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: install
          image: {{ include "mczk.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args:
            - install
            - --without-operator
            - --stage={{ $stage }}
            - --wait-seconds={{ .Values.install.waitSeconds }}
            - --image={{ include "mczk.image" . }}
            - --member-image={{ .Values.serverImage | default (include "mczk.image" .) }}
            - --kubeconfig=/etc/mczk/administrator/{{ .Values.install.kubeconfigSecret.key }}
            - --host-namespace={{ .Release.Namespace }}
            - --service-name={{ include "mczk.name" . }}
            - --service-port={{ .Values.service.port }}
            {{- if ne .Values.webhook.path "/interpreter" }}
            - --webhook-path={{ .Values.webhook.path }}
            {{- end }}
            - --tls-secret={{ .Values.webhook.tlsSecret }}
            {{- with .Values.webhook.certificateIssuer }}
            - --certificate-issuer={{ . }}
            {{- end }}
            - --kubeconfig-secret={{ .Values.karmada.kubeconfigSecret.name }}
            {{- if .Values.dashboard.enabled }}
            - --dashboard
            {{- end }}
            {{- with .Values.install.flags }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          volumeMounts:
            - name: administrator
              mountPath: /etc/mczk/administrator
              readOnly: true
      volumes:
        - name: administrator
          secret:
            secretName: {{ .Values.install.kubeconfigSecret.name }}
            defaultMode: 288 # 0440
      {{- with .Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end }}
