#!/usr/bin/env bash
# All static checks: format, clippy, dependencies, protocol, scripts, house rules.
# Usage: lint.sh
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$LOCAL_DIR/setup.sh" build python
"$LOCAL_DIR/tools.sh" lint
PATH=$REPO/.local/tools/bin:$PATH
cd "$REPO"

for component in fmt clippy; do
  cargo "$component" --version >/dev/null 2>&1 ||
    die "cargo $component is missing: rustup component add rustfmt clippy"
done

heading 'house rules'
scripts/check-house.sh
heading 'scripts'
shellcheck deploy/local/*.sh scripts/*.sh .ci/run
heading 'protocol'
buf lint
buf format -d --exit-code --exclude-path proto/google
heading 'format'
cargo fmt --all --check
heading 'dependencies'
cargo deny --locked check --hide-inclusion-graph bans licenses sources
heading 'clippy'
cargo clippy --workspace --all-targets --locked -- -D warnings
say 'lint: all checks passed'
