// A real runtime on the real kernel, with a layer made of the host's static busybox. One process
// per test (CTest).
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cgroups/tree.h"
#include "runtime/default_spec.h"
#include "runtime/runtime.h"

namespace hutch::runtime {

struct Outcome {
  AgentEvent event;  // kExited or kStartFailed
  std::string out, err;
  int exit_code() const;    // -1 unless it exited
  int term_signal() const;  // 0 unless a signal ended it
};

class SandboxTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Starts (again) with these settings; the fixture begins with pools off.
  void StartRuntime(Pools pools, uint32_t blanks);
  void StopRuntime();
  // Begins, waits for kReady. nullptr and *error when it fails.
  std::unique_ptr<Sandbox> Make(oci::Spec spec, std::optional<Error>* error = nullptr);
  std::unique_ptr<Sandbox> Make() { return Make(DefaultSpec()); }
  // Runs to the end of the leader; collects what it wrote.
  Outcome Run(Sandbox& sandbox, std::vector<std::string> args) {
    return RunAs(sandbox, std::move(args), DefaultSpec());
  }
  Outcome RunAs(Sandbox& sandbox, std::vector<std::string> args, const oci::Spec& spec);
  Outcome Shell(Sandbox& sandbox, const std::string& script) {
    return Run(sandbox, {"/bin/sh", "-c", script});
  }
  // Waits for the end of a process started elsewhere.
  AgentEvent WaitProcess(Sandbox& sandbox, uint32_t process);
  void Destroy(Sandbox& sandbox);
  void Pump(int timeout_ms);  // one round of Dispatch
  std::vector<UniqueFd> Layers() const;

  std::string dir_, layer_dir_;
  std::unique_ptr<cgroups::Tree> tree_;
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace hutch::runtime
