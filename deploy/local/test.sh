#!/usr/bin/env bash
# Builds everything and runs all tests on private services of their own.
# Usage: test.sh [ARGUMENTS OF cargo nextest run]     (by default --workspace)
#
# Services that already run in .local/test are used and left running; otherwise they are
# started, and stopped in every case.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$LOCAL_DIR/binaries.sh"

TEST_STATE=$REPO/.local/test

stop_services() {
  "$LOCAL_DIR/services.sh" wipe "$TEST_STATE"
}

main() {
  local name
  [[ $# -gt 0 ]] || set -- --workspace
  # A shell that has sourced .local/env must not lead the tests to another stack.
  for name in $(compgen -e TENURE_); do unset "$name"; done

  "$LOCAL_DIR/setup.sh"
  "$LOCAL_DIR/tools.sh" test
  cd "$REPO"
  heading 'building'
  # End-to-end tests start the binaries themselves.
  cargo build --locked --workspace --all-targets

  heading 'testing'
  if [[ -e $TEST_STATE/services.env ]]; then
    "$LOCAL_DIR/services.sh" up --s3 "$TEST_STATE"
  else
    trap stop_services EXIT
    "$LOCAL_DIR/services.sh" up --s3 "$TEST_STATE"
  fi
  # shellcheck source=/dev/null
  source "$TEST_STATE/services.env"
  TENURE_BIN_DIR=$(target_dir debug)
  export TENURE_BIN_DIR TENURE_PYTHON=$REPO/.local/tools/bin/python
  # The mark lets `wipe` find what a killed test leaves behind.
  PATH=$REPO/.local/tools/bin:$PATH TENURE_INSTANCE=$(cd "$TEST_STATE" && pwd -P) \
    cargo nextest run --locked --no-tests fail "$@" </dev/null
}

main "$@"
