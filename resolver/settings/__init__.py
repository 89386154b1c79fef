"""What operators and maintainers say: read once, whole and strictly."""
