{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{/* Not empty when Nodes get labels that say what their memory is. */}}
{{- define "splitfs.nodeLabels" -}}
{{- if and .Values.status.enabled .Values.status.nodeLabels }}true{{ end }}
{{- end }}
{{/* What the administrator says of the nodes' platform, for the environment of everything that asks. */}}
{{- define "splitfs.platformEnv" -}}
{{- if ne .Values.devices.platform "auto" }}
- name: SPLITFS_PLATFORM
  value: {{ .Values.devices.platform }}
{{- end }}
{{- end }}
{{/* What nodes offer to make volumes of, as a JSON array; refuses what could never work. */}}
{{- define "splitfs.devices" -}}
{{- $enabled := list }}
{{- if .Values.devices.emulated.enabled }}{{ $enabled = append $enabled "emulated" }}{{ end }}
{{- if .Values.devices.lvm.enabled }}{{ $enabled = append $enabled "lvm" }}{{ end }}
{{- if .Values.devices.namespace.enabled }}{{ $enabled = append $enabled "namespace" }}{{ end }}
{{- if not $enabled }}
{{- fail "devices: none is enabled; enable emulated, lvm or namespace" }}
{{- end }}
{{- $device := .Values.storageClasses.device }}
{{- if not (has $device $enabled) }}
{{- fail (printf "storageClasses.device is %s, which no node offers; set devices.%s.enabled: true" $device $device) }}
{{- end }}
{{- $regions := .Values.devices.regions }}
{{- $classes := list }}
{{- $defaults := list }}
{{- $thin := list }}
{{- $pools := list }}
{{- range .Values.devices.lvm.classes }}
{{- if has .name $classes }}{{ fail (printf "devices.lvm.classes: %s is there twice" .name) }}{{ end }}
{{- $classes = append $classes .name }}
{{- if .default }}{{ $defaults = append $defaults .name }}{{ end }}
{{- if eq (.type | default "linear") "thin" }}
{{- $thin = append $thin .name }}
{{- if has .thinPool.name $pools }}{{ fail (printf "devices.lvm.classes: thin pool %s is that of two classes" .thinPool.name) }}{{ end }}
{{- $pools = append $pools .thinPool.name }}
{{- end }}
{{- range .regions }}
{{- if not (or (has . $regions) (has "all" $regions)) }}{{ fail (printf "devices.lvm.classes: region %s of a class is not among devices.regions" .) }}{{ end }}
{{- end }}
{{- end }}
{{- if gt (len $defaults) 1 }}
{{- fail (printf "devices.lvm.classes: only one can be the default, but %s are; set default: true for one of them" (join ", " $defaults)) }}
{{- end }}
{{- if and $classes (not .Values.devices.lvm.enabled) }}
{{- fail "devices.lvm.classes is set, but devices.lvm is not enabled" }}
{{- end }}
{{- $class := .Values.storageClasses.deviceClass }}
{{- if and $class (ne $device "lvm") }}
{{- fail (printf "storageClasses.deviceClass is %s, but %s volumes have no classes; leave it empty" $class $device) }}
{{- end }}
{{- if and $class (not (has $class $classes)) }}
{{- fail (printf "storageClasses.deviceClass is %s, which is not among devices.lvm.classes" $class) }}
{{- end }}
{{- if and (eq $device "lvm") $classes (not $class) (not $defaults) }}
{{- fail (printf "storageClasses.deviceClass is empty, and none of devices.lvm.classes is the default; set it to one of %s" (join ", " $classes)) }}
{{- end }}
{{- $chosen := $class | default (first $defaults) }}
{{- if and (eq $device "lvm") (has $chosen $thin) (or .Values.storageClasses.strict.create .Values.storageClasses.sync.create) (ne .Values.storageClasses.durability "any") }}
{{- fail (printf "storageClasses: device class %s is thin, which has no direct access (DAX) and so is no durable memory, as strict and sync want it; set storageClasses.durability to any, or choose another class" $chosen) }}
{{- end }}
{{- if and (eq $device "lvm") (has $chosen $thin) (ne .Values.storageClasses.erase "none") }}
{{- fail (printf "storageClasses.erase is %s, but device class %s is thin, and thin volumes cannot be erased; set it to none" .Values.storageClasses.erase $chosen) }}
{{- end }}
{{- if and (or (has "lvm" $enabled) (has "namespace" $enabled)) (not $regions) }}
{{- fail "devices: lvm and namespace need regions that SplitFS may use; set devices.regions to [all], or to names or interleave sets" }}
{{- end }}
{{- if and $regions (not (or (has "lvm" $enabled) (has "namespace" $enabled))) }}
{{- fail "devices.regions is set, but neither devices.lvm nor devices.namespace is enabled" }}
{{- end }}
{{- toJson $enabled }}
{{- end }}
