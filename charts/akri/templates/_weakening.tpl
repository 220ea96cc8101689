{{/* What each value of the release that weakens security means, by the name of the value: a
     dictionary, from files/weakening.yaml. */}}
{{- define "akri.weakening" -}}
{{- $found := dict }}
{{- $sections := list }}
{{- range include "akri.handlers" . | fromYamlArray }}{{ $sections = append $sections .section }}{{ end }}
{{- range $entry := .Files.Get "files/weakening.yaml" | fromYamlArray }}
{{- $section := splitList "." .value | first }}
{{- $path := splitList "." .value | rest }}

{{- $names := ternary (keys $.Subcharts) (list $section) (contains "*" $section) }}
{{- range include "akri.handlers" $ | fromYamlArray }}
{{- if get . ($entry.unless | default "") }}{{ $names = without $names (printf "handler-%s" .name) }}{{ end }}
{{- end }}

{{- range $names }}
{{- $actual := get $.Values . | default dict }}
{{- /* A service that is not enabled has no defaults, and the library no values. */}}
{{- $set := or (hasKey $actual (first $path)) (hasKey $actual "image") }}
{{- range $path }}{{ $actual = index ($actual | default dict) . }}{{ end }}
{{- $weak := ne (empty $actual) (empty $entry.safe) }}
{{- if $entry.matches }}
{{- $weak = regexMatch ($entry.matches | replace "HANDLERS" (join "|" $sections)) (toJson $actual) }}
{{- else if kindIs "slice" $entry.safe }}
{{- range $entry.safe }}{{ $weak = not (has . ($actual | default list)) }}{{ end }}
{{- end }}
{{- if and $weak $set (regexMatch (printf "^%s$" (replace "*" ".*" $section)) .) }}
{{- $value := include "akri.weakening.name" (list $ . $path $entry.upstream) }}
{{- $_ := set $found $value (printf "%s=%s: %s. Restore it with %s=%s." $value (toJson $actual) $entry.means $value (toJson $entry.safe)) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{/* The name of a value, or upstream Akri's if that is set. The argument is a list of root, section,
     path and the name without its section that upstream Akri has for the value. */}}
{{- define "akri.weakening.name" -}}
{{- $name := printf "%s.%s" (index . 1) (index . 2 | join ".") }}
{{- $root := index . 0 }}{{ $service := index . 1 }}{{ $upstream := index . 3 }}
{{- range include "akri.handlers" $root | fromYamlArray }}
{{- if and $upstream .section (eq $service (printf "handler-%s" .name)) }}
{{- $actual := get $root.Values .section }}
{{- range splitList "." $upstream }}{{ $actual = get ($actual | default dict) . }}{{ end }}
{{- if $actual }}{{ $name = printf "%s.%s" .section $upstream }}{{ end }}
{{- end }}
{{- end }}
{{- $name }}
{{- end }}
