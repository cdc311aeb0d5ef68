{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Which pods the injector has to do with at all; the same for webhooks and policy. */}}
{{- define "splitfs.podScope" -}}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: {{ include "splitfs.exemptNamespaces" . }}
    - key: splitfs.io/inject
      {{- if eq .Values.injector.namespaces "labelled" }}
      operator: In
      values: ["true"]
      {{- else }}
      operator: NotIn
      values: ["false"]
      {{- end }}
objectSelector:
  matchExpressions:
    # As a label, the opt-out works even while no injector answers.
    - key: splitfs.io/inject
      operator: NotIn
      values: ["false"]
{{- end }}

{{/* What both webhooks have in common. */}}
{{- define "splitfs.podWebhook" -}}
admissionReviewVersions: [v1]
# Only an event, and not for a dry run.
sideEffects: NoneOnDryRun
# Another webhook may add a container or a mount after us.
reinvocationPolicy: IfNeeded
timeoutSeconds: {{ .Values.injector.timeoutSeconds }}
clientConfig:
  # The injector, or cert-manager, fills in caBundle.
  service:
    name: splitfs-injector
    namespace: {{ .Release.Namespace }}
    path: /mutate-pods
rules:
  - apiGroups: [""]
    apiVersions: [v1]
    resources: [pods]
    operations: [CREATE]
    scope: Namespaced
{{ include "splitfs.podScope" . }}
{{- end }}

{{- define "splitfs.hasClaim" -}}
# Pods without a claim have nothing to do with us.
- name: has-claim
  expression: >-
    has(object.spec.volumes) &&
    object.spec.volumes.exists(v, has(v.persistentVolumeClaim) || has(v.ephemeral))
{{- end }}

{{/*
A CEL expression: the pod needs strict or sync by what it says itself, or has an ephemeral volume of a class that promises them. A mode
that is none counts too: the injector has to say what is wrong with it.
*/}}
{{- define "splitfs.asksForGuarantee" -}}
(has(object.metadata.annotations) && object.metadata.annotations.exists(k, (k == 'splitfs.io/mode' || k.startsWith('splitfs.io/mode.')) && object.metadata.annotations[k] != 'posix')) || (!(has(object.metadata.annotations) && 'splitfs.io/mode' in object.metadata.annotations) && object.spec.volumes.exists(v, has(v.ephemeral) && has(v.ephemeral.volumeClaimTemplate) && (has(v.ephemeral.volumeClaimTemplate.spec.storageClassName) ? v.ephemeral.volumeClaimTemplate.spec.storageClassName in {{ include "splitfs.requiredClasses" . }} : {{ include "splitfs.defaultClassRequires" . }})))
{{- end }}

{{/* A CEL list: StorageClasses whose promise needs the library. */}}
{{- define "splitfs.requiredClasses" -}}
{{ concat (list "splitfs-strict" "splitfs-sync") .Values.injector.requiredClasses | uniq | toJson | replace "\"" "'" }}
{{- end }}

{{- define "splitfs.defaultClassRequires" -}}
{{- $classes := .Values.storageClasses -}}
{{ or (and $classes.strict.create $classes.strict.default) (and $classes.sync.create $classes.sync.default) }}
{{- end }}

{{/* The certificate by cert-manager, into the Secret that the injector reads. */}}
{{- define "splitfs.certManager" -}}
{{- $issuer := .Values.injector.certManager.issuerRef -}}
{{- if not $issuer.name }}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: splitfs-injector
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "splitfs.componentLabels" (dict "root" . "component" "injector") | nindent 4 }}
spec:
  selfSigned: {}
{{- end }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: splitfs-injector
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "splitfs.componentLabels" (dict "root" . "component" "injector") | nindent 4 }}
spec:
  secretName: splitfs-injector-certs
  dnsNames:
    - splitfs-injector.{{ .Release.Namespace }}.svc
  privateKey:
    algorithm: ECDSA
    size: 256
    rotationPolicy: Always
  issuerRef:
    {{- if $issuer.name }}
    {{- toYaml $issuer | nindent 4 }}
    {{- else }}
    kind: Issuer
    name: splitfs-injector
    {{- end }}
{{- end }}
