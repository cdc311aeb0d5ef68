{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/*
Names are fixed: the CSI driver registers one name per cluster, so there can be only one release.
*/}}
{{- define "splitfs.labels" -}}
app.kubernetes.io/name: splitfs
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: splitfs
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Arguments: dict "root" $ "component" NAME. What selects the pods of a component; never changes between versions. */}}
{{- define "splitfs.selector" -}}
app.kubernetes.io/name: splitfs
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Arguments: dict "root" $ "component" NAME. */}}
{{- define "splitfs.componentLabels" -}}
{{ include "splitfs.labels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Arguments: dict "root" $ "image" VALUES. */}}
{{- define "splitfs.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "splitfs.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Where pods may run; the argument is a component's values. */}}
{{- define "splitfs.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What every container has that needs no right on the node. */}}
{{- define "splitfs.lockedDown" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end }}

{{/*
Probes of a sidecar whose port has this name. All it serves are its metrics (/healthz/leader-election is there with leader election
only), and it serves them from the moment on that its driver has answered, or for the snapshot controller the API server: before, it is
not ready. When it loses its driver later it ends.
*/}}
{{- define "splitfs.alive" -}}
readinessProbe:
  httpGet:
    path: /metrics
    port: {{ . }}
  timeoutSeconds: 5
  periodSeconds: 10
livenessProbe:
  httpGet:
    path: /metrics
    port: {{ . }}
  timeoutSeconds: 5
  periodSeconds: 20
  failureThreshold: 6
{{- end }}

{{- define "splitfs.exemptNamespaces" -}}
{{ append .Values.injector.exemptNamespaces .Release.Namespace | uniq | sortAlpha | toJson }}
{{- end }}
