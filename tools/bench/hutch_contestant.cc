// hutch, through its API: create, exec and delete over one keep-alive connection a slot, from
// inside this process. The start of the `hutch` program is not part of it.

#include "tools/bench/clock.h"
#include "tools/bench/contestant.h"
#include "tools/bench/programs.h"
#include "tools/client.h"

namespace hutch::tools {
namespace {

using oci::Json;

// Small, so that a hundred at once fit where memory is admitted by limits.
constexpr uint64_t kMemoryBytes = uint64_t{64} << 20;
constexpr uint64_t kCopyRoomBytes = uint64_t{512} << 20;  // beside the largest file: small ones

std::string TargetOf(const std::string& id) { return "/v1/sandboxes/" + EncodeSegment(id); }

class HutchContestant : public Contestant {
 public:
  HutchContestant(const Setup& setup, const std::string& socket)
      : setup_(setup), socket_(socket), image_(setup.image), control_(socket_) {}
  ~HutchContestant() override {
    RemoveCreated();
    for (const std::string& id : {running_, copies_})
      if (!id.empty()) IgnoreError(control_.Delete(TargetOf(id)), "it may be gone");
  }

  Status Prepare(size_t slots) override {
    RETURN_IF_ERROR(control_.Get("/v1/health"));
    while (clients_.size() < slots) {
      clients_.push_back(std::make_unique<Client>(socket_));
      RETURN_IF_ERROR(clients_.back()->Get("/v1/health"));  // connected before the clock runs
    }
    created_.resize(clients_.size());
    if (!running_.empty()) return OkStatus();
    ASSIGN_OR_RETURN(running_, CreateOne(&control_, kMemoryBytes));
    return OkStatus();
  }

  Result<double> Cold(const Argv& argv, size_t slot) override {
    Client* client = clients_[slot].get();
    const Stopwatch watch;
    ASSIGN_OR_RETURN(const std::string id, CreateOne(client, kMemoryBytes));
    const Status ran = ExecOne(client, id, argv);
    RETURN_IF_ERROR(client->Delete(TargetOf(id)));
    const double elapsed_ms = watch.ElapsedMs();
    RETURN_IF_ERROR(ran);
    return elapsed_ms;
  }

  Result<double> Exec(const Argv& argv) override {
    const Stopwatch watch;
    RETURN_IF_ERROR(ExecOne(&control_, running_, argv));
    return watch.ElapsedMs();
  }

  Result<double> Create(size_t slot) override {
    const Stopwatch watch;
    ASSIGN_OR_RETURN(created_[slot], CreateOne(clients_[slot].get(), kMemoryBytes));
    return watch.ElapsedMs();
  }

  // With the command line, as the peers' copies are made; in a sandbox of its own that has room.
  Result<double> CopyIn(const std::string& from, const std::string& to) override {
    if (copies_.empty()) {
      ASSIGN_OR_RETURN(copies_, CreateOne(&control_, setup_.copy_bytes + kCopyRoomBytes));
    }
    return TimeOf({setup_.hutch_program, "--socket", socket_, "cp", from, copies_ + ":" + to});
  }
  Result<double> CopyOut(const std::string& from, const std::string& to) override {
    return TimeOf({setup_.hutch_program, "--socket", socket_, "cp", copies_ + ":" + from, to});
  }
  void RemoveCopy(const std::string& path) override {
    IgnoreError(ExecOne(&control_, copies_, {"/bin/rm", "-rf", path}), "the next one tells");
  }

  void RemoveCreated() override {
    for (std::string& id : created_) {
      if (!id.empty()) IgnoreError(control_.Delete(TargetOf(id)), "it may be gone");
      id.clear();
    }
  }

 private:
  // What a sandbox writes counts as its memory.
  Result<std::string> CreateOne(Client* client, uint64_t memory_bytes) {
    Json body = {{"image", image_}, {"limits", {{"memory_bytes", memory_bytes}}}};
    if (memory_bytes != kMemoryBytes) body["limits"]["disk_bytes"] = memory_bytes;
    ASSIGN_OR_RETURN(const Json sandbox, client->Post("/v1/sandboxes", body));
    std::string id;
    RETURN_IF_ERROR(
        oci::ObjectReader(sandbox, "").String("id", &id).Done(oci::ObjectReader::Unknown::kIgnore));
    return id;
  }

  static Status ExecOne(Client* client, const std::string& id, const Argv& argv) {
    ASSIGN_OR_RETURN(const Json reply, client->Post(TargetOf(id) + "/exec", {{"command", argv}}));
    const auto code = reply.find("exit_code");
    if (code != reply.end() && *code == 0) return OkStatus();
    return Error{.code = Code::kBadState, .what = "the command failed: " + oci::PrintJson(reply)};
  }

  Setup setup_;
  std::string socket_, image_;
  Client control_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::string> created_;
  std::string running_, copies_;
};

}  // namespace

std::unique_ptr<Contestant> MakeHutch(const Setup& setup) {
  return std::make_unique<HutchContestant>(setup, setup.socket);
}

std::unique_ptr<Contestant> MakeHutchPoolsOff(const Setup& setup) {
  if (setup.pools_off_socket.empty()) return nullptr;
  return std::make_unique<HutchContestant>(setup, setup.pools_off_socket);
}

}  // namespace hutch::tools
