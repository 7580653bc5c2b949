"""`python -m biasbed`."""

import signal

if __name__ == "__main__":  # the workers of a sweep import this file
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` knows better: cut off in an import, say nothing
    from biasbed.cli import run

    run()
