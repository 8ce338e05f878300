// A store that pulls from tests/support/fake_registry.py.
#pragma once

#include <unistd.h>

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "oci/json.h"
#include "rootfs/child_program.h"
#include "rootfs/digest.h"
#include "rootfs/registry/registry.h"
#include "tests/kernel/rootfs/store_fixture.h"
#include "tests/support/tar_writer.h"

namespace hutch::rootfs {

struct FakeRequest {
  std::string port, method, path, range, authorization, form;
};

class RegistryTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    options_.retries = 3;
    options_.stall_seconds = 2;
  }
  void TearDown() override {
    stdin_.reset();
    server_.reset();
  }
  // `cert` and `key`: the first port speaks TLS.
  void StartServer(const std::string& cert = "", const std::string& key = "") {
    auto in = MakePipe(), out = MakePipe();
    ASSERT_TRUE(in.has_value() && out.has_value());
    // Debian's own: another that is found first would look for its library in the wrong place.
    std::vector<std::string> args = {"/usr/bin/python3",
                                     SourceFile("tests/support/fake_registry.py"), work_.path()};
    if (!cert.empty()) args.insert(args.end(), {cert, key});
    auto server = ChildProgram::Start({.path = "/usr/bin/python3",
                                       .args = std::move(args),
                                       .env = {"PATH=/usr/bin:/bin"},
                                       .fds = {in->read.get(), out->write.get(), 2}});
    ASSERT_TRUE(server.has_value());
    server_.emplace(*std::move(server));
    stdin_ = std::move(in->write);
    out->write.reset();
    std::string line;
    for (char c = 0; ::read(out->read.get(), &c, 1) == 1 && c != '\n';) line += c;
    const size_t space = line.find(' ');
    ASSERT_NE(space, std::string::npos) << "no ports: " << line;
    host_ = "127.0.0.1:" + line.substr(0, space);
    // By another name, so that it is another host to everybody.
    other_ = "localhost:" + line.substr(space + 1);
    if (cert.empty()) options_.plain_http.push_back(host_);
    options_.plain_http.push_back(other_);
  }
  // An image of these layers, lowest first, as plain tars.
  void Serve(const std::vector<std::string>& tars) {
    Layout layout;
    for (const std::string& tar : tars) layout.layers.push_back({tar, DigestOf(tar)});
    Serve(layout);
  }
  void Serve(const Layout& layout) {
    IgnoreError(RemoveTree(work_ / "layout"), "there may be none");
    WriteLayoutFiles(layout, work_ / "layout");
    if (!server_) StartServer();
  }
  // "$OTHER" and "$HOST" in them become the ports' hosts.
  void Rules(std::string json) {
    for (const auto& [word, host] :
         {std::pair<std::string, std::string>{"$OTHER", other_}, {"$HOST", host_}})
      for (size_t at; (at = json.find(word)) != std::string::npos;)
        json.replace(at, word.size(), host);
    ASSERT_TRUE(oci::ParseJson(json).has_value()) << json;
    ASSERT_TRUE(WriteFileAtomic(work_ / "rules.json", json, Durability::kMemory).has_value());
  }
  Result<Image> TryPull(const std::string& name = "test/image:v1", const std::string& host = "") {
    const std::string text = (host.empty() ? host_ : host) + "/" + name;
    auto reference = ParseReference(text, kDefaultRegistry);
    EXPECT_TRUE(reference.has_value()) << text;
    request_.reference = *reference;
    return rootfs::Pull(
        *store_, options_, request_,
        [this](const Progress& report) {
          reports_.push_back(report);
          if (on_progress_) on_progress_(report);
        },
        cancelled_);
  }
  Image Pull(const std::string& name = "test/image:v1") {
    auto image = TryPull(name);
    EXPECT_TRUE(image.has_value()) << Text(image.error());
    return image ? *image : Image();
  }
  // What a refused pull says; but for downloads the state is as it was.
  Error Refused(const std::string& name = "test/image:v1") {
    const auto before = PathsButDownloads();
    const auto image = TryPull(name);
    EXPECT_FALSE(image.has_value()) << name << " was pulled";
    EXPECT_EQ(PathsButDownloads(), before);
    return image ? Error() : image.error();
  }
  std::vector<std::string> PathsButDownloads() const {
    std::vector<std::string> paths = Paths();
    std::erase_if(paths,
                  [](const std::string& p) { return p.find("downloads") != std::string::npos; });
    return paths;
  }
  std::vector<std::string> Parts() const {
    const auto names = ListDirectory(state_ / "state/downloads");
    return names ? *names : std::vector<std::string>();
  }
  std::vector<FakeRequest> Requests(const std::string& part_of_path = "") const {
    std::vector<FakeRequest> requests;
    const auto log = ReadFile(work_ / "requests.log", 16u << 20);
    for (const std::string& line : Split(log ? *log : "", '\n')) {
      const auto json = oci::ParseJson(line);
      if (!json) continue;
      FakeRequest r;
      EXPECT_TRUE(oci::ObjectReader(*json, "")
                      .String("port", &r.port)
                      .String("method", &r.method)
                      .String("path", &r.path)
                      .String("range", &r.range)
                      .String("authorization", &r.authorization)
                      .String("form", &r.form)
                      .Done(oci::ObjectReader::Unknown::kRefuse)
                      .has_value());
      if (r.path.find(part_of_path) != std::string::npos) requests.push_back(std::move(r));
    }
    return requests;
  }
  std::vector<FakeRequest> RequestsOf(const std::string& tar) const {
    return Requests("/blobs/" + DigestOf(tar));
  }
  void ForgetRequests() {
    IgnoreError(RemoveTree(work_ / "requests.log"), "there may be none");
    reports_.clear();
  }
  bool WasReported(const std::string& stage, const std::string& subject = "") const {
    for (const Progress& report : reports_)
      if (report.stage == stage && (subject.empty() || report.subject == subject)) return true;
    return false;
  }
  // A tar of about so many bytes that do not repeat.
  static std::string Tar(const std::string& name, size_t bytes = 1000) {
    std::string data;
    while (data.size() < bytes) data += DigestOf(name + std::to_string(data.size()));
    return TarWriter().File(name, data).Bytes();
  }

  std::string host_, other_;
  RegistryOptions options_;
  PullRequest request_;
  std::atomic<bool> cancelled_ = false;
  std::vector<Progress> reports_;
  ProgressFn on_progress_;

 private:
  UniqueFd stdin_;
  std::optional<ChildProgram> server_;
};

}  // namespace hutch::rootfs
