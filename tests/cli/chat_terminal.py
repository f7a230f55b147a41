#!/usr/bin/env python3
# chunkkv chat on a terminal: prompt, line editing, history, pastes, Ctrl-C and Ctrl-D.
#   chat_terminal.py CHUNKKV MODEL EDITING      EDITING: whether it was built with libedit, 1 or 0
import os, pty, re, select, shutil, signal, stat, sys, tempfile, time

chunkkv, model, editing = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
passed = failed = 0


def check(what, good, seen=b""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED:", what, repr(seen[-600:]))


class Terminal:
    def __init__(self, home, *options):
        environment = {k: v for k, v in os.environ.items() if k != "XDG_STATE_HOME"}
        environment.update(HOME=home, TERM="xterm", LC_ALL="C.UTF-8")
        command = [chunkkv, "chat", "-m", model, "-t", "1", "--ctx-budget", "512", *options]
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execve(chunkkv, command, environment)

    def send(self, text):
        os.write(self.file, text.encode())

    def read(self, pattern, most=60):
        """What comes until the pattern does."""
        out, end = b"", time.time() + most
        while not re.search(pattern, out) and time.time() < end:
            if select.select([self.file], [], [], 0.1)[0]:
                try:
                    got = os.read(self.file, 65536)
                except OSError:
                    break
                if not got:
                    break
                out += got
        return out

    def ask(self, text, pattern=rb"\n> $", most=60):
        self.send(text)
        return self.read(pattern, most)

    def status(self):
        end = time.time() + 30
        while time.time() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            self.read(rb"(?!)", 0.2)
        os.kill(self.pid, signal.SIGKILL)
        return None


home = tempfile.mkdtemp()
t = Terminal(home, "-n", "12")
check("a prompt", t.read(rb"> $").endswith(b"> "))
t.ask("line one\rline two\rline three\r", rb"(?s)line three.*\n> $")
seen = t.ask("/stats\r", rb"(?s)still held.*> $")
check("a paste is one message", len(re.findall(rb" you ", seen)) == 1, seen)
t.ask('"""\rblock one\r\rblock two\r"""\r', rb"(?s)\n> $")
seen = t.ask("/stats\r", rb"(?s)still held.*> $")
check("a block is one message", len(re.findall(rb" you ", seen)) == 2, seen)
if editing:
    seen = t.ask("/sats\x1b[D\x1b[D\x1b[Dt\r", rb"(?s)still held.*> $|no command.*> $")
    check("lines are edited", b"still held" in seen, seen)
    seen = t.ask("\x1b[A\r", rb"(?s)still held.*> $")
    check("the line before comes back", b"still held" in seen, seen)
    history = os.path.join(home, ".local/state/chunkkv/history")
    check("the history is nobody else's", os.path.exists(history) and stat.S_IMODE(os.stat(history).st_mode) == 0o600)
    check("and holds what was said", "line\\040two" in open(history).read())
t.send("half a line\x03")
check("Ctrl-C drops the line", b"again" in t.read(rb"again[^>]*> $"))
t.ask("/help\r", rb"(?s)Ctrl-C.*> $")
t.send("\x04")
check("Ctrl-D ends", t.status() == 0)

t = Terminal(home, "-n", "4000")
t.read(rb"> $")
if editing:
    check("the history is there the next time", b"/help" in t.ask("\x1b[A", rb"/help"))
    t.send("\x15")
t.ask("Write a very long story about a cat and a dog.\r", rb"(?s)dog\..*\n.{30}")
seen = t.ask("\x03", rb"\n> $")
check("Ctrl-C stops the reply", seen.endswith(b"\n> "), seen)
t.ask("What is two and two?\r", rb"(?s)two\?.*\n.{8}")
t.ask("\x03", rb"\n> $", 10)
seen = t.ask("/stats\r", rb"(?s)still held.*> $")
spans = [int(n) for n in re.findall(rb" (?:you|model) +(\d+) tokens", seen)]
tokens = int(re.search(rb"tokens seen +(\d+)", seen).group(1))
# The template's own: 3 before the first message, 6 after each, 5 after a reply that another message follows; of a reply
# that was stopped the last token may still have to be decoded.
check("a stopped reply is closed once", len(spans) == 4 and sum(spans) + 3 + 2 * 6 + 5 - tokens in (0, 1), seen)
t.send("\x03")
t.read(rb"again[^>]*> $")
t.send("\x03")
check("a second Ctrl-C at the prompt ends", t.status() == 130)
shutil.rmtree(home)
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
