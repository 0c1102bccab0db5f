"""What speaks against the numbers stands before them, and as loudly as the good news."""

import pytest

from stickymoe.experiments.sweep_report.claims import decide
from stickymoe.experiments.sweep_report.findings import best_bargain, findings, sweep_headline
from stickymoe.experiments.sweep_report.rows import sweep_of
from stickymoe.experiments.sweep_report.summary import summarise_size
from stickymoe.experiments.sweep_report.sweep_cautions import sweep_cautions


@pytest.fixture
def told(invented):
    def make(rows):
        sweep = sweep_of(rows)
        return sweep_cautions(sweep, [summarise_size(sweep, size) for size in sweep.sizes])

    return make


def has(texts, *words):
    return [text for text in texts if all(word in text for word in words)]


def test_flat_gates_are_told_with_their_numbers(told, invented):
    (text,) = has(told(invented.invented_rows()), "flat rather than sticky")
    assert "Soft λ=0.5 (entropy 1.99 of 2.00 bits, margin 0.020" in text
    assert "of the gain kept" in text


@pytest.mark.parametrize("change", [1.0, 0.95])
def test_a_gain_that_is_not_clear_of_zero_is_told(told, invented, change):
    rows = invented.invented_rows(variants=("vanilla", "soft-0.1"))
    rows += [invented.invented_row(seed=seed, variant="dense", change=change) for seed in (42, 43, 44)]
    assert has(told(rows), "not clear of zero", "locality is free here and proves nothing")


def test_routers_that_learn_nothing_and_still_beat_vanilla_are_told(told, invented):
    rows = invented.invented_rows(variants=("vanilla", "dense"))
    for variant, change in (("hash", 0.8), ("trajectory-token", 1.02), ("soft-0.1", 0.9)):
        rows += [invented.invented_row(seed=seed, variant=variant, change=change) for seed in (42, 43, 44)]
    (text,) = has(told(rows), "learn nothing")
    assert "Hash" in text
    assert "rajectory" not in text
    assert "Soft" not in text


def test_a_missing_control_is_told(told, invented):
    assert has(told(invented.invented_rows(variants=("vanilla", "soft-0.1"))), "no dense control")
    assert has(told(invented.invented_rows(variants=("soft-0.1", "dense"))), "no Vanilla run")


def test_one_seed_is_told_and_uneven_seeds_are(told, invented):
    assert has(told(invented.invented_rows(seeds=(42,))), "one seed (42)", "no value has an interval")
    rows = [row for row in invented.invented_rows() if row.run != "small/44/oracle"]
    assert has(told(rows), "not all of the seeds 42, 43, 44", "Oracle-MoE")


def test_what_holds_of_several_sizes_is_told_once(told, invented):
    rows = invented.invented_rows(sizes=("small", "medium"), seeds=(42,), variants=("vanilla", "soft-0.1"))
    (text,) = has(told(rows), "no dense control")
    assert text.startswith(("At small and medium no", "At medium and small no"))
    assert len(has(told(rows), "one seed (42)")) == 1


def test_what_was_not_finished_and_what_is_missing_is_counted(told, invented):
    rows = [
        row for row in invented.invented_rows(seeds=(42, 43)) if row.run not in ("small/43/oracle", "small/43/remoe")
    ]
    rows.append(invented.invented_row(seed=43, variant="remoe", complete=False))
    assert has(told(rows), "1 run is begun and not finished")
    assert has(told(rows), "1 run is missing")


def test_experts_given_up_are_told(told, invented):
    metrics = invented.measured("small", 42, "soft-0.2", change=1.0, rate=0.3, entropy=1.0, margin=0.3)
    metrics["routing"]["utilisation_entropy_bits"] = invented.flat(1.05)
    rows = [*invented.invented_rows(seeds=(42,), variants=("vanilla", "dense")),
            invented.invented_row(variant="soft-0.2", metrics=metrics)]  # fmt: skip
    assert has(told(rows), "uses few experts", "Soft λ=0.2 (as if 2.1 of 4)")


def test_the_sweeps_own_caveat_comes_first(told, invented):
    assert told(invented.invented_rows())[0] == "Invented numbers."


def test_other_machines_and_commits_are_told(told, invented):
    metrics = invented.measured("small", 43, "vanilla", change=1.0, rate=0.7, entropy=1.3, margin=0.4)
    other = invented.invented_row(seed=43, metrics=metrics | {"commit": "f"}, hardware='{"processor": "other"}')
    rows = [invented.invented_row(), other]
    assert has(told(rows), "2 different commits")
    assert has(told(rows), "different machines (other; toy)")


def test_the_best_bargain_keeps_half_of_the_gain_with_the_fewest_misses(summary):
    assert best_bargain(summary()).name == "soft-hard-0.1-1"
    assert best_bargain(summary({"soft-hard-0.1-1": {"change": 1.09}})).name == "soft-0.2", (
        "soft-0.5 misses less, by flat gates"
    )
    assert best_bargain(summary({"dense": {"change": 1.0}})) is None


def test_bad_news_stands_beside_the_good(summary):
    found = {finding.heading: finding for finding in findings(summary())}
    assert found["Best bargain"].tone == "good"
    assert found["Flat, not sticky"].tone == "bad"
    assert "63 % of the gain kept" in found["Flat, not sticky"].text
    assert "Hard-Window W=2" in found["Less than half of the gain kept"].text
    worthless = {finding.heading: finding for finding in findings(summary({"dense": {"change": 1.0}}))}
    assert worthless["What experts are worth"].tone == "bad"
    assert "Best bargain" not in worthless


def test_the_headline_counts_runs_and_verdicts(both_sizes):
    claims = decide([summarise_size(both_sizes, size) for size in both_sizes.sizes])
    said = sweep_headline(both_sizes, claims)
    assert said.startswith(
        "78 of 78 runs are finished, measured on 5,000 held-out tokens of toy. Of the paper's claims,"
    )
    assert "at small 7 hold; at medium 7 hold; at medium against small 1 does not hold." in said


def test_a_sweep_without_a_finished_run_says_so(invented):
    assert sweep_headline(sweep_of([invented.invented_row(complete=False)]), []) == "None of the 1 runs is finished."
