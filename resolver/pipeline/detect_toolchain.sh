for program in python3 node go cargo java ruby make; do
    command -v "$program" >/dev/null || continue
    case $program in
        go) option=version ;;
        java) option=-version ;;
        *) option=--version ;;
    esac
    printf '%s %s\n' "$program" "$("$program" $option 2>&1 | grep -Eo '[0-9]+(\.[0-9]+)+' | head -n 1)"
done
