// hutch-files: does one file request inside a sandbox, as an ordinary process of its user. Executed
// from a sealed memfd by hutchd; argv[1] is the request's JSON, or "-" where it comes on
// descriptor 0. See files/operations.h.
#include <sys/stat.h>

#include <csignal>

#include "files/operations.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that is gone is an error like others
  ::umask(022);                   // whatever the agent's was
  hutch::files::ReplyStream reply(2);
  hutch::files::Io io{.in = 0, .out = 1, .reply = reply};
  return hutch::files::RunRequest(argc == 2 ? argv[1] : "", io);
}
