#!/usr/bin/env bash
# Installs what the local stack needs and this machine lacks, from the distribution.
# Usage: setup.sh [build] [services] [python]     (all three by default)
#
# As root, or where sudo asks for no password, it installs; otherwise it says what to
# install. It neither starts nor stops nor configures the machine's own services.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$LOCAL_DIR/paths.sh"

POLICY=/usr/sbin/policy-rc.d
MARK='made by the Tenure checkout'

lacking() {
  local part
  for part in "$@"; do
    case $part in
      build)
        command -v cc >/dev/null || echo build-essential
        ;;
      services)
        command -v python3 >/dev/null || echo python3
        find_postgres >/dev/null || echo postgresql
        find_rabbitmq >/dev/null || echo rabbitmq-server
        find_redis >/dev/null || echo redis-server
        ;;
      python)
        command -v python3 >/dev/null || echo python3
        python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
        ;;
      *) die "setup.sh knows build, services and python, not '$part'" ;;
    esac
  done | sort -u
}

need_rust() {
  command -v cargo >/dev/null ||
    die 'Rust is missing: install it with rustup (https://rustup.rs), then run this again'
  local wanted found
  wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$REPO/Cargo.toml")
  found=$(cd "$REPO" && rustc --version | cut -d' ' -f2)
  [[ $(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1) == "$wanted" ]] ||
    die "Tenure needs Rust $wanted or later, this is $found: run 'rustup update stable'"
}

# Our policy keeps an install from starting the machine's own PostgreSQL, RabbitMQ and
# Redis, which nobody asked for. It acts only while this script lives, so a copy that is
# left behind by a SIGKILL refuses nothing. A policy that the machine has stays.
hold_services() {
  if as_root test -e "$POLICY" && ! as_root grep -qs "$MARK" "$POLICY"; then return 0; fi
  local start
  start=$(process_start $$)
  printf '%s\n' '#!/bin/sh' "# $MARK: no service starts during its package install." \
    "[ \"\$(sed 's/.*) //' /proc/$$/stat 2>/dev/null | cut -d' ' -f20)\" = $start ] && exit 101" \
    'exit 0' | as_root tee "$POLICY" >/dev/null
  as_root chmod 0755 "$POLICY"
  trap release_services EXIT
}

release_services() {
  if as_root grep -qs "$MARK" "$POLICY"; then as_root rm -f "$POLICY"; fi
}

as_root() {
  if is_root; then "$@"; else sudo -n "$@"; fi
}

# Its hundreds of lines are of use only where it fails.
apt() {
  local told
  told=$(as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
    apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null 2>&1) || {
    printf '%s\n' "$told" >&2
    return 1
  }
}

# Package lists have a lock of their own, for which apt itself does not wait.
apt_update() {
  local tries
  for tries in 1 2 3 4 5 6; do
    if apt update; then return 0; fi
    say "apt-get update failed (try $tries of 6)"
    sleep 10
  done
  die 'apt-get update failed; see its messages above'
}

install() {
  local updated=no package
  for package in "$@"; do
    if ! apt-cache show "$package" >/dev/null 2>&1; then
      [[ $updated == yes ]] || apt_update
      updated=yes
    fi
  done
  hold_services
  say "installing: $*"
  # Old lists name versions that the mirrors no longer have: refresh them, once.
  if ! apt install -y --no-install-recommends "$@"; then
    [[ $updated == no ]] || die "apt-get could not install: $*"
    apt_update
    apt install -y --no-install-recommends "$@" || die "apt-get could not install: $*"
  fi
}

main() {
  [[ $# -gt 0 ]] || set -- build services python
  [[ " $* " != *' build '* ]] || need_rust
  local -a missing
  mapfile -t missing < <(lacking "$@")
  ((${#missing[@]})) || return 0
  say "missing on this machine: ${missing[*]}"
  if ! command -v apt-get >/dev/null; then
    die "this is no Debian or Ubuntu: install what these packages hold, then run this again: ${missing[*]}"
  fi
  if ! is_root && ! sudo -n true 2>/dev/null; then
    die "install it, then run this again:  sudo apt-get install --no-install-recommends ${missing[*]}"
  fi
  install "${missing[@]}"
  mapfile -t missing < <(lacking "$@")
  ((${#missing[@]} == 0)) || die "installed, but still not found: ${missing[*]}"
}

main "$@"
