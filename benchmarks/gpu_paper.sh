#!/usr/bin/env bash
# The paper's small grid (one seed, 10,000 steps a run) on one GPU, in one call that ends on time.
#
#     benchmarks/gpu_paper.sh                        # ten minutes, all runs side by side on the GPU
#     benchmarks/gpu_paper.sh --seed 43 --to kept    # also copy rows, report and log into kept/
#     benchmarks/gpu_paper.sh --dry-run              # no GPU: say what would run, and try it here: two runs of four steps
#
# --minutes N  when the call shall be over (10); what is not finished by then is saved, and the same call goes on
# --jobs N     runs at a time (16: the models have 9 M parameters)
# --out DIR    runs and rows (results/paper)
# --python P   interpreter (python3); the package is taken from src/ beside this script
# WikiText-2 is read from $STICKYMOE_DATA, else from the hub; where raw train is not at hand, v1 is taken and every row
# says so.
set -euo pipefail

minutes=10 jobs=16 seed=42 out=results/paper to="" python=python3 dry=""
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry=yes; shift; continue ;;
        -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit ;;
        --minutes | --jobs | --seed | --out | --to | --python)
            [ $# -gt 1 ] || { echo "error: $1 needs a value" >&2; exit 2; }
            declare "${1#--}=$2"; shift 2 ;;
        *) echo "error: unknown option $1; see $0 --help" >&2; exit 2 ;;
    esac
done
begun=$SECONDS
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$root/src${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1
sticky() { "$python" -m stickymoe "$@"; }

for number in "$minutes" "$jobs" "$seed"; do
    case $number in '' | *[!0-9]*) echo "error: $number is no whole number" >&2; exit 2 ;; esac
done
"$python" -c 'import stickymoe.experiments.sweeps.sweep' ||
    { echo "error: $python lacks what the package needs: $python -m pip install $root" >&2; exit 2; }
if [ -z "$dry" ] && ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo "error: torch sees no GPU; --dry-run tries the whole path without one" >&2
    exit 2
fi

grid=()
for family in vanilla dense 'soft-0.[0-9]' 'soft-0.[0-9][0-9]' 'soft-hard*' 'hard-window-[0-9]' remoe oracle; do
    grid+=(--only "small/$seed/$family")
done
text=()
if [ -n "${STICKYMOE_DATA:-}" ] && [ ! -f "$STICKYMOE_DATA/wikitext-2-raw/wiki.train.raw" ]; then
    echo "WikiText-2 raw train is not in $STICKYMOE_DATA: v1 is taken, whose rare words are <unk>"
    text=(--set data.corpus=wikitext-2-v1)
fi

if [ -n "$dry" ]; then
    sticky sweep paper "${grid[@]}" "${text[@]}" --out "$out" --jobs "$jobs" --dry-run
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    out=$place/paper
    mkdir "$place/text"
    for page in "$root"/docs/*.md; do cp "$page" "$place/text/$(basename "$page" .md).txt"; done
    grid=(--only "small/$seed/vanilla" --only "small/$seed/soft-0.1")
    text=(--set "data.corpus=$place/text" --set training.steps=4 --set training.warmup_steps=1 --set training.batch_size=2)
    jobs=2
else
    nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
fi

# Runs that are asked to stop save first; the report takes seconds
left=$((minutes * 60 - (SECONDS - begun) - 45))
[ "$left" -gt 30 ] || { echo "error: --minutes $minutes is too short to begin" >&2; exit 2; }
log=$(mktemp)
code=0
timeout --signal=INT --kill-after=40 "$left" \
    "$python" -m stickymoe sweep paper "${grid[@]}" "${text[@]}" --out "$out" --jobs "$jobs" 2>&1 | tee "$log" || code=$?
[ "$code" = 0 ] || echo "the sweep ended with $code; the same call goes on with what is saved in $out"
sticky report "$out"
if [ -n "$to" ]; then
    mkdir -p "$to"
    cp -r "$out/rows" "$out/report.md" "$out/report.html" "$to"
    cp "$log" "$to/sweep.log"
fi
rm -f "$log"
echo "$((SECONDS - begun)) s"
exit "$code"
