"""`stickymoe generate`."""


def test_it_prints_the_prompt_and_its_continuation_alike_for_a_seed(stickymoe, trained):
    words = ["generate", trained / "run", "--prompt", "the union", "--max-new-tokens", "8", "--seed", "3"]
    first, again = stickymoe(*words), stickymoe(*words)
    assert first.exit_code == 0, first.output
    assert first.stdout == again.stdout
    assert first.stdout.startswith("the union")
    assert first.stderr == ""
    assert stickymoe(*words, "--temperature", "0").stdout != first.stdout


def test_bad_input_is_one_line_with_exit_code_2(stickymoe, trained):
    run = trained / "run"
    for words, message in (
        ([run], "Missing option '--prompt'"),
        ([run, "--prompt", ""], "--prompt must be at least one token long"),
        ([run, "--prompt", "the union " * 40], "--prompt must be shorter than the model's 32 positions"),
        ([run, "--prompt", "a"], "--max-new-tokens must be <= 31"),
        ([run, "--prompt", "a", "--temperature", "-1"], "--temperature must be 0"),
        ([trained, "--prompt", "a"], "holds no trained model"),
    ):
        done = stickymoe("generate", *words)
        assert done.exit_code == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"error: {message}") or message in line
