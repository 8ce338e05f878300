// Pulls that go well, and connections that do not.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <utime.h>

#include <ctime>
#include <thread>

#include "rootfs/limits.h"
#include "rootfs/registry/limits.h"
#include "tests/kernel/rootfs/registry_fixture.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kMiB = 1u << 20;

TEST_F(RegistryTest, PullsAnImageAndNamesIt) {
  const std::string a = Tar("a", 3 * kMiB), b = Tar("b");
  Serve({a, b});
  const Image image = Pull();
  EXPECT_EQ(image.references, std::vector<std::string>{host_ + "/test/image:v1"});
  EXPECT_EQ(image.diff_ids, (std::vector<std::string>{DigestOf(a), DigestOf(b)}));
  EXPECT_TRUE(PathExists(LayerRoot(image.diff_ids[0]) + "/a"));
  EXPECT_TRUE(Parts().empty());
  EXPECT_TRUE(WasReported("resolve", host_ + "/test/image:v1"));
  for (const std::string& tar : {a, b}) EXPECT_TRUE(WasReported("download", DigestOf(tar)));
  EXPECT_TRUE(WasReported("unpack", image.id));
  Reopen();
  EXPECT_EQ(store_->Resolve(host_ + "/test/image:v1")->id, image.id);
}

TEST_F(RegistryTest, ASecondPullAsksForTheManifestOnly) {
  const std::string a = Tar("a");
  Serve({a});
  const Image image = Pull();
  ForgetRequests();
  EXPECT_EQ(Pull("test/image:v2").id, image.id);
  ASSERT_EQ(Requests().size(), 1u);
  EXPECT_EQ(Requests()[0].path, "/v2/test/image/manifests/v2");
  EXPECT_EQ(store_->Resolve(image.id)->references.size(), 2u);
  const Image by_digest = Pull("test/image@" + image.id);
  EXPECT_EQ(by_digest.id, image.id);
  EXPECT_EQ(store_->Resolve(host_ + "/test/image@" + image.id)->id, image.id);
}

TEST_F(RegistryTest, LayersThatAreHereAreNotDownloaded) {
  const std::string a = Tar("a"), b = Tar("b"), c = Tar("c");
  Serve({a, b});
  Pull();
  ForgetRequests();
  Serve({a, b, c, a});
  const Image image = Pull();
  EXPECT_EQ(image.diff_ids.size(), 3u);
  EXPECT_TRUE(RequestsOf(a).empty());
  EXPECT_TRUE(RequestsOf(b).empty());
  EXPECT_EQ(RequestsOf(c).size(), 1u);
  EXPECT_TRUE(WasReported("exists", DigestOf(a)));
  EXPECT_FALSE(WasReported("download", DigestOf(a)));
}

TEST_F(RegistryTest, OfAnIndexThisMachinesImageIsTaken) {
  const std::string a = Tar("a");
  Layout layout;
  layout.layers = {{a, DigestOf(a)}};
  Serve(layout);
  const auto manifest = oci::ParseIndex(*ReadFile(work_ / "layout/index.json", kMaxDocumentBytes));
  const oci::Descriptor own = manifest->manifests[0];
  const auto entry = [&](const std::string& digest, const std::string& architecture) {
    return "{\"mediaType\":\"" + own.media_type + "\",\"digest\":\"" + digest +
           "\",\"size\":" + std::to_string(own.size) +
           ",\"platform\":{\"os\":\"linux\",\"architecture\":\"" + architecture + "\"}}";
  };
#if defined(__x86_64__)
  const std::string here = "amd64";
#else
  const std::string here = "arm64";
#endif
  layout.index =
      "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\","
      "\"manifests\":[" +
      entry(DigestOf("another"), "s390x") + "," + entry(own.digest, here) + "]}";
  Serve(layout);
  EXPECT_EQ(Pull("test/image:index").id, own.digest);
  ForgetRequests();
  EXPECT_EQ(Pull("test/image:index").id, own.digest);
  EXPECT_EQ(Requests().size(), 1u);
  layout.index = "{\"schemaVersion\":2,\"manifests\":[" + entry(own.digest, "s390x") + "]}";
  Serve(layout);
  const Error error = Refused("test/image:index");
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_NE(error.what.find("linux/s390x"), std::string::npos);
}

TEST_F(RegistryTest, AKilledConnectionIsGoneOnWith) {
  const std::string a = Tar("a", 4 * kMiB);
  Serve({a});
  Rules(R"([{"match":"blobs/)" + DigestOf(a) + R"(","close_after":1500000,"times":2}])");
  Pull();
  const auto requests = RequestsOf(a);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].range, "");
  EXPECT_EQ(requests[1].range, "bytes=1500000-");
  EXPECT_EQ(requests[2].range, "bytes=3000000-");
}

TEST_F(RegistryTest, AnotherPullGoesOnWhereOneFailed) {
  const std::string a = Tar("a", 2 * kMiB), b = Tar("b");
  Serve({a, b});
  Rules(R"([{"match":"blobs/)" + DigestOf(a) + R"(","close_after":1000000}])");
  options_.retries = 0;
  const Error error = Refused();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.what.find(DigestOf(a)), std::string::npos);
  std::string part = state_ / "state/downloads/";
  for (const std::string& name : Parts())
    if (name.starts_with(DigestOf(a).substr(7) + "-")) part += name;
  struct stat st {};
  ASSERT_EQ(::stat(part.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  EXPECT_EQ(st.st_size, 1'000'000);
  Reopen();
  Rules("[]");
  ForgetRequests();
  Pull();
  ASSERT_EQ(RequestsOf(a).size(), 1u);
  EXPECT_EQ(RequestsOf(a)[0].range, "bytes=1000000-");
  EXPECT_TRUE(Parts().empty());
}

TEST_F(RegistryTest, RangesThatAreAnsweredWronglyCostARestart) {
  const std::string fault[] = {R"("ignore_range":true)", R"("shift":7)", R"("unsatisfiable":true)",
                               R"("headers":{"Content-Range":"bytes 0-9/10"})"};
  for (size_t i = 0; i < std::size(fault); ++i) {
    const std::string a = Tar("a" + std::to_string(i), 2 * kMiB);
    Serve({a});
    const std::string match = R"({"match":"blobs/)" + DigestOf(a) + "\",";
    Rules("[" + match + R"("close_after":1000000,"times":1},)" + match + fault[i] + "}]");
    ForgetRequests();
    Pull("test/image:v" + std::to_string(i));
    EXPECT_LE(RequestsOf(a).size(), 3u) << fault[i];
    EXPECT_EQ(RequestsOf(a)[1].range, "bytes=1000000-");
  }
}

TEST_F(RegistryTest, WrongBytesAreFetchedOnceMoreAndThenNamed) {
  const std::string a = Tar("a", kMiB);
  Serve({a});
  const std::string match = R"([{"match":"blobs/)" + DigestOf(a) + R"(","corrupt":true)";
  Rules(match + "}]");
  const Error error = Refused();
  EXPECT_EQ(error.code, Code::kCorrupt);
  EXPECT_NE(error.what.find(DigestOf(a)), std::string::npos);
  EXPECT_EQ(RequestsOf(a).size(), 2u);
  EXPECT_TRUE(Parts().empty());
  Rules(match + R"(,"times":1}])");
  Pull();
}

TEST_F(RegistryTest, ABlobOfAnotherLengthIsRefused) {
  const std::string a = Tar("a", kMiB);
  Serve({a});
  const std::string match = R"([{"match":"blobs/)" + DigestOf(a) + "\",";
  for (const std::string fault :
       {R"("longer":5)", R"("longer":5,"chunked":true)", R"("content_length":999999999999)",
        R"("close_after":1000,"chunked":true)"}) {
    Rules(match + fault + "}]");
    EXPECT_EQ(Refused().code, Code::kCorrupt) << fault;
  }
}

TEST_F(RegistryTest, AStalledConnectionIsTriedAgain) {
  const std::string a = Tar("a", kMiB);
  Serve({a});
  options_.stall_seconds = 1;
  Rules(R"([{"match":"blobs/)" + DigestOf(a) +
        R"(","close_after":500000,"then_stall":20,"times":1}])");
  Pull();
  ASSERT_EQ(RequestsOf(a).size(), 2u);
  EXPECT_EQ(RequestsOf(a)[1].range, "bytes=500000-");
}

TEST_F(RegistryTest, AConnectionThatTricklesIsTriedAgain) {
  const std::string a = Tar("a", kMiB);
  Serve({a});
  options_.stall_seconds = 1;
  Rules(R"([{"match":"blobs/)" + DigestOf(a) + R"(","chunk":20,"pause":0.1,"times":1}])");
  Pull();
  EXPECT_EQ(RequestsOf(a).size(), 2u);
}

TEST_F(RegistryTest, BusyServersAreAskedAgain) {
  const std::string a = Tar("a");
  Serve({a});
  Rules(R"([{"match":"manifests","status":429,"headers":{"Retry-After":"1"},"times":1},)"
        R"({"match":"blobs","status":503,"times":2}])");
  Pull();
  EXPECT_EQ(Requests("manifests").size(), 2u);
  Rules(R"([{"match":"manifests","status":502,"body":"oh"}])");
  Error error = Refused();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.what.find("tried 4 times"), std::string::npos) << error.what;
  Rules(R"([{"match":"manifests","status":429,"headers":{"Retry-After":"3600"}}])");
  ForgetRequests();
  error = Refused();
  EXPECT_NE(error.what.find("3600 s"), std::string::npos) << error.what;
  EXPECT_EQ(Requests().size(), 1u);
}

TEST_F(RegistryTest, WhatIsNotThereIsNotAskedForAgain) {
  Serve({Tar("a")});
  Rules(
      R"([{"match":"manifests","status":404,)"
      R"("body":"{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\",\"message\":\"no\\nsuch tag\"}]}"}])");
  const Error error = Refused();
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_NE(error.what.find("MANIFEST_UNKNOWN: no such tag"), std::string::npos) << error.what;
  EXPECT_EQ(Requests().size(), 1u);
}

TEST_F(RegistryTest, ADiskThatIsFullIsNoSpace) {
  const std::string a = Tar("a", 4 * kMiB);
  Serve({a});
  ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  const std::string downloads = state_ / "state/downloads";
  ASSERT_TRUE(MakeDirectories(downloads, 0700).has_value());
  ASSERT_EQ(::mount("tmpfs", downloads.c_str(), "tmpfs", 0, "size=1m"), 0);
  EXPECT_EQ(Refused().code, Code::kNoSpace);
  EXPECT_EQ(RequestsOf(a).size(), 1u);
  EXPECT_TRUE(Parts().empty());
  ASSERT_EQ(::umount2(downloads.c_str(), MNT_DETACH), 0);
}

TEST_F(RegistryTest, OfTwoPullsAtOnceOneDownloads) {
  const std::string a = Tar("a", 2 * kMiB), b = Tar("b", kMiB);
  Serve({a, b});
  Rules(R"([{"match":"blobs","pause":0.01}])");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      PullRequest request;
      request.reference =
          *ParseReference(host_ + "/test/image:t" + std::to_string(i), kDefaultRegistry);
      const auto image = rootfs::Pull(*store_, options_, request, nullptr, cancelled_);
      EXPECT_TRUE(image.has_value()) << Text(image.error());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(RequestsOf(a).size(), 1u);
  EXPECT_EQ(RequestsOf(b).size(), 1u);
  EXPECT_EQ(store_->List().size(), 1u);
  EXPECT_EQ(store_->List()[0].references.size(), 4u);
  EXPECT_TRUE(Parts().empty());
}

TEST_F(RegistryTest, ARegistryThatTricklesHoldsUpNoPullFromAnother) {
  const std::string a = Tar("a", 2 * kMiB);
  Serve({a});
  Rules(R"([{"match":"registry .*blobs/)" + DigestOf(a) +
        R"(","close_after":1000000,"then_stall":60}])");
  options_.stall_seconds = 60;
  std::thread slow([this] {
    PullRequest request;
    request.reference = *ParseReference(host_ + "/test/image:v1", kDefaultRegistry);
    EXPECT_FALSE(rootfs::Pull(*store_, options_, request, nullptr, cancelled_).has_value());
  });
  while (RequestsOf(a).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  request_.reference = *ParseReference(other_ + "/test/image:v1", kDefaultRegistry);
  std::atomic<bool> never = false;
  const auto image = rootfs::Pull(*store_, options_, request_, nullptr, never);
  EXPECT_TRUE(image.has_value()) << Text(image.error());
  cancelled_ = true;
  slow.join();
}

TEST_F(RegistryTest, ACancelledPullEndsAndKeepsWhatCame) {
  const std::string a = Tar("a", 2 * kMiB);
  Serve({a});
  options_.stall_seconds = 30;
  Rules(R"([{"match":"blobs/)" + DigestOf(a) + R"(","close_after":1000000,"then_stall":30}])");
  on_progress_ = [this](const Progress& report) {
    if (report.stage == "download" && report.done != 0) cancelled_ = true;
  };
  const Error error = Refused();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.what.find("cancelled"), std::string::npos);
  EXPECT_EQ(Parts().size(), 1u);
}

TEST_F(RegistryTest, ALayerIsUnpackedWhileAnotherIsStillToCome) {
  const std::string a = Tar("a"), b = Tar("b");
  Serve({a, b});
  options_.retries = 20;
  Rules(R"([{"match":"blobs/)" + DigestOf(b) + R"(","status":503}])");
  on_progress_ = [this](const Progress& report) {
    if (report.stage == "unpack") Rules("[]");
  };
  Pull();
}

TEST_F(RegistryTest, OldPartsAreSwept) {
  Serve({Tar("a")});
  const std::string downloads = state_ / "state/downloads";
  ASSERT_TRUE(MakeDirectories(downloads, 0700).has_value());
  for (const std::string name : {"old.part", "new.part"})
    ASSERT_TRUE(WriteFileAtomic(downloads + "/" + name, "x", Durability::kMemory).has_value());
  const time_t then = std::time(nullptr) - (registry::kPartDays * 86'400 + 60);
  const struct utimbuf times = {then, then};
  ASSERT_EQ(::utime((downloads + "/old.part").c_str(), &times), 0);
  Pull();
  EXPECT_EQ(Parts(), std::vector<std::string>{"new.part"});
}

TEST_F(RegistryTest, MirrorsAreAskedFirstAndDoneWithout) {
  const std::string a = Tar("a", kMiB), b = Tar("b");
  Serve({a, b});
  options_.mirrors[host_] = {"localhost:1", other_};
  options_.plain_http.push_back("localhost:1");
  Rules(R"([{"match":"other .*blobs/)" + DigestOf(a) +
        R"(","corrupt":true},)"
        R"({"match":"other .*blobs/)" +
        DigestOf(b) + R"(","status":404}])");
  const Image image = Pull();
  EXPECT_EQ(image.references, std::vector<std::string>{host_ + "/test/image:v1"});
  EXPECT_EQ(Requests("manifests")[0].port, "other");
  EXPECT_EQ(RequestsOf(a).back().port, "registry");
  EXPECT_EQ(RequestsOf(b).back().port, "registry");
  Rules(R"([{"match":".","status":404}])");
  const Error error = Refused("test/image:v3");
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_NE(error.what.find("mirror localhost:1"), std::string::npos) << error.what;
}

}  // namespace
}  // namespace hutch::rootfs
