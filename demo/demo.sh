#!/usr/bin/env bash
# The main job on a tiny model: build it, pass the gates, train it with the unmodified
# llamafactory-cli, show what the record holds.
set -euo pipefail
cd "$(dirname "$0")/.."
out=demo/out
rm -rf "$out"
mkdir -p "$out"
export OMP_NUM_THREADS=1  # bit-reproducible, and what runs beside it does not slow it down
without_bars() { tr '\r' '\n' | grep -v -E 'Loading weights|Writing model shards|^$' >&2 || true; }
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

say "1/8  a random Qwen3 of about 1M parameters with its own tokenizer"
python demo/make_model.py "$out/model" 2> >(without_bars)

say "2/8  llamafactory-obs baseline demo/run.yaml   (what the model can do before anything is changed)"
llamafactory-obs baseline demo/run.yaml --backend local --device cpu 2> "$out/baseline.log" | tail -n 8

say "3/8  llamafactory-obs preflight demo/run.yaml --run-smoke   (three gates before the long run)"
llamafactory-obs preflight demo/run.yaml --run-smoke 2> "$out/preflight.log" || {
    tail -n 30 "$out/preflight.log"
    exit 1
}
echo
echo "the same with one line changed, cutoff_len: 1024 -> 256; it would train, and its loss would fall:"
sed 's/^cutoff_len: 1024/cutoff_len: 256/' demo/run.yaml > "$out/broken.yaml"
if llamafactory-obs preflight "$out/broken.yaml" --gate mask output_dir="$out/broken" 2> "$out/broken.log"; then
    echo "the broken config was not caught" >&2
    exit 1
fi

say "4/8  llamafactory-cli train demo/run.yaml   (its callbacks: lines are all it takes; log: $out/train.log)"
start=$SECONDS
if ! llamafactory-cli train demo/run.yaml > "$out/train.log" 2>&1; then
    tail -n 30 "$out/train.log"
    exit 1
fi
tr '\r' '\n' < "$out/train.log" | grep -E '^ *(\[[A-Z]+\|obs\]|\{.obs_step)' | sed -E 's/^ +//' | awk 'NR <= 5 || /WARNING|ALERT| probe: /' || true
echo "... trained in $((SECONDS - start)) s"

say "5/8  what the record shows"
python demo/show.py "$out/run"

say "6/8  llamafactory-obs diagnose $out/run   (what shape the run has, kill or keep)"
llamafactory-obs diagnose "$out/run" --html "$out/run.html" || [ $? = 1 ]
echo "... as a page: $out/run.html"

say "7/8  what each checkpoint really says (asked beside the training; the loss cannot see this)"
awk '/^── checkpoint-20 /, /^✗ tool_error/' "$out/run/obs/probe/companion.log" | head -n -1
awk '/^── checkpoint-40 /, /^✗ tool_error/' "$out/run/obs/probe/companion.log" | head -n -1
echo "... all of it: $out/run/obs/probe/companion.log"
for _ in $(seq 60); do [ -e "$out/run/obs/probe/pid" ] && sleep 1; done  # the companion still looks at the final model
llamafactory-obs probe "$out/run" || true
echo
echo "a golden set is a bigger suite; the last checkpoint on questions it never saw:"
llamafactory-obs probe "$out/run/checkpoint-140" --suite demo/data/golden.yaml --no-baseline --json > "$out/golden.jsonl" 2> /dev/null || true
python demo/show.py --golden "$out/run"

say "8/8  llamafactory-obs report $out/run   (the record sheet; nothing left to fill in)"
llamafactory-obs report "$out/run" --price 2.5 --note "make demo"
llamafactory-obs report "$out/run" --price 2.5 --html "$out/report.html"
echo "... as a page: $out/report.html; live, in another terminal: llamafactory-obs watch $out/run, or board demo/out"
