{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Values that contradict each other are refused: they would silently do nothing. */}}
{{- define "splitfs.moduleCheck" -}}
{{- with .Values.module }}
{{- if and (not .enabled) (or .images .build.enabled .signing.secretName) }}
{{- fail "module: images, build or signing are set, but module.enabled is false" }}
{{- end }}
{{- if and .signing.secretName (not .build.enabled) }}
{{- fail "module.signing.secretName is for modules that are built on the nodes; set module.build.enabled, or sign prebuilt modules when they are built" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "splitfs.moduleWanted" -}}
{{- if and .Values.module.enabled (or .Values.module.images .Values.module.build.enabled) }}true{{ end }}
{{- end }}

{{/*
Init containers that bring a module for the node's kernel before the node service starts. None of them keeps it from starting when
there is none: the node service looks at what is there, and reports it.
*/}}
{{- define "splitfs.moduleInit" -}}
{{- $modules := printf "%s/modules" .Values.node.dataDir }}
# The program for the containers below, whose images need not hold it.
- name: module-tools
  image: {{ include "splitfs.image" (dict "root" . "image" .Values.images.csiDriver) }}
  imagePullPolicy: {{ .Values.images.pullPolicy }}
  command: [cp, /usr/local/bin/splitfs-csi, /tools/]
  securityContext:
    {{- include "splitfs.lockedDown" . | nindent 4 }}
  volumeMounts:
    - name: module-tools
      mountPath: /tools
{{- range $i, $image := .Values.module.images }}
- name: module-copy-{{ $i }}
  image: {{ $image }}
  imagePullPolicy: {{ $.Values.images.pullPolicy }}
  command: [/tools/splitfs-csi]
  args:
    - module
    - copy
    - --tolerant
    - --from=/opt/splitfs/modules
    - --to={{ $modules }}
  securityContext:
    # Only modules that belong to root are trusted.
    runAsUser: 0
    {{- include "splitfs.lockedDown" $ | nindent 4 }}
  volumeMounts:
    - name: module-tools
      mountPath: /tools
      readOnly: true
    - name: modules
      mountPath: {{ $modules }}
{{- end }}
{{- with .Values.module.build }}
{{- if .enabled }}
- name: module-build
  image: {{ include "splitfs.image" (dict "root" $ "image" .image) }}
  imagePullPolicy: {{ $.Values.images.pullPolicy }}
  command: [/tools/splitfs-csi]
  args:
    - module
    - build
    - --tolerant
    - --host-root=/host
    - --out={{ $modules }}
    - --timeout={{ .timeout }}
    {{- if .offline }}
    - --offline
    {{- end }}
    {{- if $.Values.module.signing.secretName }}
    - --sign-key=/run/secrets/module-signing/tls.key
    - --sign-cert=/run/secrets/module-signing/tls.crt
    {{- end }}
  env:
    - name: SPLITFS_CACHE
      value: /var/cache/splitfs
  securityContext:
    runAsUser: 0
    allowPrivilegeEscalation: false
    capabilities:
      drop: [ALL]
    # Kernel headers name each other by absolute paths: links to those of the node appear in /usr/src, /usr/lib and /lib/modules.
    readOnlyRootFilesystem: false
  {{- with .resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
    - name: module-tools
      mountPath: /tools
      readOnly: true
    - name: modules
      mountPath: {{ $modules }}
    - name: module-cache
      mountPath: /var/cache/splitfs
    - name: host
      mountPath: /host
      readOnly: true
    {{- if $.Values.module.signing.secretName }}
    - name: module-signing
      mountPath: /run/secrets/module-signing
      readOnly: true
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "splitfs.moduleVolumes" -}}
- name: module-tools
  emptyDir: {}
- name: modules
  hostPath:
    path: {{ .Values.node.dataDir }}/modules
    type: DirectoryOrCreate
{{- if .Values.module.build.enabled }}
- name: module-cache
  emptyDir: {}
- name: host
  hostPath:
    path: /
    type: Directory
{{- end }}
{{- with .Values.module.signing.secretName }}
- name: module-signing
  secret:
    secretName: {{ . }}
    defaultMode: 0400
{{- end }}
{{- end }}
