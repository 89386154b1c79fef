for program in python3 node go cargo java ruby make; do
    command -v "$program" >/dev/null || continue
    case $program in
        go) printf 'go: %s\n' "$(go version 2>&1 | head -n 1)" ;;
        java) printf 'java: %s\n' "$(java -version 2>&1 | head -n 1)" ;;
        *) printf '%s: %s\n' "$program" "$("$program" --version 2>&1 | head -n 1)" ;;
    esac
done
