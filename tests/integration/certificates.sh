# shellcheck shell=bash
# Certificates and a token for tests of metrics by TLS; a test sources it after lib.sh.

# make_ca NAME: $T/NAME.pem and its key, good for a day.
make_ca() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj "/CN=$1" \
    -keyout "$T/$1.key" -out "$T/$1.pem" 2>/dev/null || fail "openssl makes no CA"
}
# make_certificate NAME CA NAMES: $T/NAME.pem by CA for these names (subjectAltName), and its key, which the daemon may read.
make_certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$T/$1.key.new" -out "$T/$1.csr" 2>/dev/null
  openssl x509 -req -in "$T/$1.csr" -CA "$T/$2.pem" -CAkey "$T/$2.key" -CAcreateserial -days 1 \
    -extfile <(echo "subjectAltName=$3") -out "$T/$1.pem.new" 2>/dev/null || fail "openssl makes no certificate"
  give_secret "$1.key"
  mv "$T/$1.pem.new" "$T/$1.pem"
}
# make_token NAME: $T/NAME, of 64 digits.
make_token() {
  openssl rand -hex 32 >"$T/$1.new"
  give_secret "$1"
}
# give_secret NAME: puts $T/NAME.new in its place, for the daemon's user alone.
give_secret() {
  chmod 600 "$T/$1.new"
  chown "$DAEMON_USER" "$T/$1.new"
  mv "$T/$1.new" "$T/$1"
}
