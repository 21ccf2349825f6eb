{{- define "synconce.labels" -}}
app.kubernetes.io/name: synconce
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "synconce.selector" -}}
app.kubernetes.io/name: synconce
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
