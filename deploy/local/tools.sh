#!/usr/bin/env bash
# Linters and test tools of pinned versions, in a Python environment of the checkout.
# Usage: tools.sh lint|test…
#
# Nothing is installed into the system but Python's venv module, where it is missing.
# The programs lie in .local/tools/bin.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TOOLS=$REPO/.local/tools
NEXTEST_FROM=0.9.100

make_environment() {
  if "$TOOLS/bin/python" -c '' 2>/dev/null; then return 0; fi
  "$LOCAL_DIR/setup.sh" python
  say "making a Python environment in $TOOLS"
  rm -rf "$TOOLS"
  mkdir -p "$REPO/.local"
  python3 -m venv "$TOOLS"
}

# install NAME: what requirements-NAME.txt lists, once for each form of that list.
install() {
  local list=$LOCAL_DIR/requirements-$1.txt mark=$TOOLS/.$1
  if cmp -s "$list" "$mark"; then return 0; fi
  say "installing tools: $(grep -v '^#' "$list" | tr '\n' ' ')"
  "$TOOLS/bin/python" -m pip install --quiet --disable-pip-version-check \
    --retries 5 --no-input --only-binary :all: -r "$list"
  cp "$list" "$mark"
}

has_nextest() {
  local found
  found=$(cargo nextest --version 2>/dev/null | sed -n '1s/cargo-nextest \([0-9.]*\).*/\1/p')
  [[ -n $found && $(printf '%s\n' "$NEXTEST_FROM" "$found" | sort -V | head -n 1) == "$NEXTEST_FROM" ]]
}

main() {
  [[ $# -gt 0 ]] || die 'usage: tools.sh lint|test…'
  # Two runs at once would write to the same environment.
  mkdir -p "$REPO/.local"
  exec 9>"$REPO/.local/tools.lock"
  flock -w 600 9 || die 'another script has been installing tools for ten minutes'
  make_environment
  local set
  for set in "$@"; do
    case $set in
      lint) install lint ;;
      test)
        install test
        has_nextest || install nextest
        ;;
      *) die "tools.sh knows lint and test, not '$set'" ;;
    esac
  done
}

main "$@"
