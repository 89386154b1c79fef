set -eu
missing=
command -v bash >/dev/null || missing="$missing bash"
command -v git >/dev/null || missing="$missing git"
command -v python3 >/dev/null || missing="$missing python3"
[ -s /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"
[ -n "$missing" ] || exit 0
command -v apt-get >/dev/null || { echo "error: no apt-get in this image, which needs:$missing"; exit 1; }
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
rm -rf /var/lib/apt/lists/*
