#!/bin/sh
# Makes the certificates of the fake control plane: an authority of its own, and with it one for the server and one for
# a client. They say nothing of anybody, and are good from 2020 to 2096, so that no test ends with them.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/index.txt"
echo 01 >"$work/serial"
cat >"$work/conf" <<EOF
[ca]
default_ca = tests
[tests]
database = $work/index.txt
serial = $work/serial
new_certs_dir = $work
default_md = sha256
policy = any
unique_subject = no
[any]
organizationName = optional
commonName = supplied
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[server]
subjectAltName = DNS:localhost,IP:127.0.0.1
extendedKeyUsage = serverAuth
[self]
basicConstraints = critical,CA:TRUE
subjectAltName = DNS:localhost,IP:127.0.0.1
[client]
extendedKeyUsage = clientAuth
EOF
issue() { # name, common name, section, further arguments
  name=$1 cn=$2 section=$3; shift 3
  openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$work/$name.key.pem"
  openssl req -new -key "$work/$name.key.pem" -subj "/O=weftrun tests/CN=$cn" -out "$work/$name.csr"
  openssl ca -batch -notext -config "$work/conf" -extensions "$section" -startdate 20200101000000Z -enddate 20960101000000Z \
    -in "$work/$name.csr" -out "$work/$name.pem" "$@" 2>/dev/null
}
signed() { issue "$@" -cert "$work/ca.pem" -keyfile "$work/ca.key.pem"; }
issue ca "private authority" authority -selfsign -keyfile "$work/ca.key.pem"
signed server localhost server
issue self localhost self -selfsign -keyfile "$work/self.key.pem"
signed client researcher client
cp "$work/ca.pem" "$work/server.pem" "$work/server.key.pem" .
cat "$work/client.pem" "$work/client.key.pem" >client-both.pem
cp "$work/self.pem" self-signed.pem && cp "$work/self.key.pem" self-signed.key.pem
