// hutch-init: started by hutchd from a sealed memfd as the spawn server; its children are the
// agents. Not for people.
#include <unistd.h>

#include <cstring>

#include "runtime/agent_child.h"

int main(int argc, char** argv) {
  static constexpr char kHelp[] =
      "hutch-init is the agent that hutchd runs as PID 1 of every sandbox; it is not started by "
      "hand.\n";
  constexpr int kControlFd = 3;
  if (argc == 2 && std::strcmp(argv[1], "spawner") == 0)
    return hutch::runtime::RunSpawner(kControlFd);
  if (::write(STDERR_FILENO, kHelp, sizeof kHelp - 1) < 0) return 3;
  return 2;
}
