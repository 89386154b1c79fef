from patchwright.runtime.docker.build_log import explain_failure, strip_control_sequences


def test_a_line_is_shown_without_colors_and_progress() -> None:
    assert (
        strip_control_sequences("\x1b[91mE: Unable to locate package\x1b[0m  \r")
        == "E: Unable to locate package"
    )


def test_the_reason_and_the_fix_are_given_in_one_line() -> None:
    log = [
        "Step 4/4 : RUN sh /tmp/bundle/prepare.sh",
        " ---> Running in 1234",
        "\x1b[91mTraceback (most recent call last):\x1b[0m",
        '  File "/usr/lib/python3.11/urllib/request.py", line 1348, in do_open',
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate",
        "urllib.error.URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate>",
        "The command '/bin/sh -c sh /tmp/prepare.sh' returned a non-zero code: 1",
    ]
    explanation = explain_failure("the interpreter bundle from debian", log)
    assert explanation == (
        "the interpreter bundle from debian cannot be built: urllib.error.URLError: <urlopen error [SSL: "
        "CERTIFICATE_VERIFY_FAILED] self-signed certificate>. To fix it, set PATCHWRIGHT_CA_BUNDLE to the "
        "certificates of your network"
    )


def test_a_build_without_network_is_explained() -> None:
    explanation = explain_failure(
        "x", ["urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"]
    )
    assert "PATCHWRIGHT_PACKAGE_INDEX" in explanation


def test_a_base_image_that_lacks_a_requirement_is_reported() -> None:
    assert "debian:bookworm-slim" in explain_failure(
        "x", ["error: no apt-get in this image, which needs: git ca-certificates"]
    )


def test_an_unknown_build_error_is_shown() -> None:
    assert explain_failure("x", ["one", "two"]) == "x cannot be built: two"
    assert explain_failure("x", []) == "x cannot be built"
