from runtime.docker.build_log import explain, plain


def test_a_line_is_shown_without_colours_and_progress() -> None:
    assert plain("\x1b[91mE: Unable to locate package\x1b[0m  \r") == "E: Unable to locate package"


def test_the_reason_and_its_mend_are_told_in_one_line() -> None:
    log = [
        "Step 4/4 : RUN sh /tmp/bundle/prepare.sh",
        " ---> Running in 1234",
        "\x1b[91mTraceback (most recent call last):\x1b[0m",
        '  File "/usr/lib/python3.11/urllib/request.py", line 1348, in do_open',
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate",
        "urllib.error.URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate>",
        "The command '/bin/sh -c sh /tmp/prepare.sh' returned a non-zero code: 1",
    ]
    told = explain("the interpreter's bundle from debian", log)
    assert told == (
        "the interpreter's bundle from debian cannot be built: urllib.error.URLError: <urlopen error [SSL: "
        "CERTIFICATE_VERIFY_FAILED] self-signed certificate>. Mend: name the certificates of your network in "
        "PATCHWRIGHT_CA_BUNDLE"
    )


def test_a_network_that_leads_nowhere_is_told_as_such() -> None:
    told = explain(
        "x", ["urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"]
    )
    assert "PATCHWRIGHT_PACKAGE_INDEX" in told


def test_a_base_without_what_the_bundle_needs_is_told_as_such() -> None:
    assert "debian:bookworm-slim" in explain(
        "x", ["error: no apt-get in this image, which lacks: git ca-certificates"]
    )


def test_a_reason_that_is_not_known_is_shown_all_the_same() -> None:
    assert explain("x", ["one", "two"]) == "x cannot be built: two"
    assert explain("x", []) == "x cannot be built"
