// The daemon's logic on fakes, driven by requests as handlers see them.
#pragma once

#include <gtest/gtest.h>

#include "base/file.h"
#include "daemon/files.h"
#include "daemon/image_archives.h"
#include "daemon/image_keeping.h"
#include "daemon/images.h"
#include "daemon/info.h"
#include "daemon/routes.h"
#include "daemon/sandbox_snapshots.h"
#include "daemon/sandboxes.h"
#include "daemon/volume_archives.h"
#include "daemon/volume_keeping.h"
#include "daemon/watching.h"
#include "daemon/worker.h"
#include "daemon/workspaces.h"
#include "tests/base/temp_dir.h"
#include "tests/daemon/answer.h"
#include "tests/daemon/fake_runtime.h"
#include "tests/daemon/fake_store.h"

namespace hutch::daemon {

class DaemonTest : public testing::Test {
 protected:
  DaemonTest() {
    std::signal(SIGPIPE, SIG_IGN);  // as main does
    config_.defaults.idle_seconds = 0;
    config_.defaults.lifetime_seconds = 0;
  }
  ~DaemonTest() override { loop_.RunPending(); }

  void StartSandboxes() { sandboxes_.Start(); }

  std::shared_ptr<Answer> Begin(const std::string& method, const std::string& path,
                                const std::string& body = "") {
    auto answer = std::make_shared<Answer>();
    Request request;
    request.method = method;
    const size_t question = path.find('?');
    request.path = path.substr(0, question);
    if (question != std::string::npos) {
      const size_t equals = path.find('=', question);
      request.query.emplace_back(path.substr(question + 1, equals - question - 1),
                                 path.substr(equals + 1));
    }
    request.body = body;
    request.wants_events = wants_events_;
    Dispatch(api_, std::move(request), Responder(answer));
    return answer;
  }
  // Runs the loop until `holds`; gives up after half a minute, since machines may be busy.
  void RunUntil(const std::function<bool()>& holds) {
    if (holds()) return;
    Timer limit, poll;
    bool late = false;
    std::function<void()> look = [&] {
      if (holds()) return loop_.Stop();
      poll.Start(loop_, Milliseconds(1), look);
    };
    limit.Start(loop_, Milliseconds(30000), [&] {
      late = true;
      loop_.Stop();
    });
    // Not at once: a stop before the loop runs would be lost.
    poll.Start(loop_, Milliseconds(0), look);
    loop_.Run();
    EXPECT_FALSE(late) << "what was waited for did not happen";
  }
  std::shared_ptr<Answer> Call(const std::string& method, const std::string& path,
                               const std::string& body = "") {
    const std::shared_ptr<Answer> answer = Begin(method, path, body);
    if (!answer->done()) RunUntil([&] { return answer->done(); });
    return answer;
  }
  std::string Create(const std::string& more = "") {
    const auto answer = Call("POST", "/v1/sandboxes", R"({"image":"busybox")" + more + "}");
    EXPECT_EQ(answer->status(), 201) << answer->reply->body;
    return answer->json().value("id", "");
  }
  FakeSandbox& Last() { return *runtime_.begun.back(); }

  TempDir directory_;
  Watching watching_;
  Loop loop_;
  Config config_ = [this] {
    Config config;
    config.state_dir = directory_ / "state";
    config.catalog_dir = directory_ / "catalog";
    config.registries.default_registry = "";  // nothing is pulled unless a test says from where
    return config;
  }();
  FakeRuntime runtime_;
  FakeStore store_;
  cgroups::Tree tree_;
  Worker worker_{1};
  bool wants_events_ = false;
  Sandboxes sandboxes_{{.loop = loop_,
                        .config = config_,
                        .runtime = runtime_,
                        .store = store_,
                        .mode = cgroups::Mode::kV2,
                        .host_memory_bytes = 8ull << 30,
                        .host_cpus = 2,
                        .watching = &watching_}};
  Pulls::Run run_pull_;  // runs on a thread of pulls_
  Pulls pulls_{loop_, [this](const auto& request, const auto& progress, const auto& cancelled) {
                 return run_pull_(request, progress, cancelled);
               }};
  Images images_{loop_, worker_, store_, sandboxes_, pulls_, config_};
  ImageKeeping image_keeping_{loop_, worker_, store_, sandboxes_};
  ImageArchives image_archives_{loop_, worker_, store_, directory_.path()};
  // No link is made: what the kernel makes of it is tested with network/workspace.h.
  Workspaces workspaces_{
      loop_,
      worker_,
      config_,
      {.make = [](const network::WorkspaceSubnet&) { return UniqueFd(); },
       .join = [](int, int, const std::string&, const network::Member&) { return OkStatus(); },
       .leave = [](int, const std::string&) { return OkStatus(); }}};
  SandboxNetworks networks_{{.loop = loop_,
                             .config = config_,
                             .worker = worker_,
                             .workspaces = workspaces_,
                             .egress_program = "/nonexistent"}};
  rootfs::Volumes volumes_{rootfs::VolumesOptions{.directory = directory_ / "volumes",
                                                  .mounts = directory_ / "mounts",
                                                  .later = [](const auto& job) { job(); }}};
  VolumeKeeping volume_keeping_{loop_, worker_, worker_, config_, volumes_, sandboxes_};
  VolumeArchives volume_archives_{loop_, volumes_};
  Info info_{config_, tree_, runtime_, sandboxes_, {}};
  FilesProgram files_;
  Audit audit_;
  SandboxSnapshots snapshots_{loop_, sandboxes_, store_};
  Api api_{.loop = loop_,
           .config = config_,
           .sandboxes = sandboxes_,
           .networks = networks_,
           .images = images_,
           .info = info_,
           .files = files_,
           .audit = audit_,
           .worker = worker_,
           .image_keeping = image_keeping_,
           .image_archives = image_archives_,
           .workspaces = workspaces_,
           .watching = watching_,
           .snapshots = snapshots_,
           .volumes = volume_keeping_,
           .volume_archives = volume_archives_};
};

}  // namespace hutch::daemon
