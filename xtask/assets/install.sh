#!/bin/sh
# Installs what is in this folder. As root, or with DESTDIR=folder to collect it there (for a package
# of a distribution). A configuration that is there stays.
set -eu
cd "$(dirname "$0")"
root="${DESTDIR:-}"

install -D -m 755 atalho "$root/usr/local/bin/atalho"
install -D -m 644 atalho.service "$root/etc/systemd/system/atalho.service"
[ -e "$root/etc/atalho/atalho.toml" ] || install -D -m 644 atalho.toml "$root/etc/atalho/atalho.toml"

doc="$root/usr/local/share/doc/atalho"
install -d -m 755 "$doc"
install -m 644 README.md CHANGELOG.md LICENSE "$doc/"
find docs -type f | while read -r page; do install -D -m 644 "$page" "$doc/$page"; done

share="$root/usr/local/share"
install -D -m 644 completions/atalho.bash "$share/bash-completion/completions/atalho"
install -D -m 644 completions/_atalho "$share/zsh/site-functions/_atalho"
install -D -m 644 completions/atalho.fish "$share/fish/vendor_completions.d/atalho.fish"

echo "installed; edit /etc/atalho/atalho.toml, then: systemctl daemon-reload && systemctl enable --now atalho"
