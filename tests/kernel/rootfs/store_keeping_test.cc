// Names, uses and removal of what is in the store.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "oci/json.h"
#include "rootfs/digest.h"
#include "rootfs/limits.h"
#include "tests/kernel/rootfs/store_fixture.h"
#include "tests/support/tar_writer.h"

namespace hutch::rootfs {
namespace {

using Request = Store::PruneRequest;

class StoreKeepingTest : public StoreTest {
 protected:
  Image Make(const std::string& content, const std::string& name) {
    const std::string directory = work_ / (content + "-layout");
    WriteOneLayer(TarWriter().File("f", content).Bytes(), Compression::kNone, directory);
    return Import(directory, name);
  }
  Store::Pruned Prune(const Request& request) {
    auto pruned = store_->Prune(request);
    EXPECT_TRUE(pruned.has_value()) << Text(pruned.error());
    return pruned ? *pruned : Store::Pruned();
  }
  static std::vector<std::string> Ids(const std::vector<Image>& images) {
    std::vector<std::string> ids;
    for (const Image& image : images) ids.push_back(image.id);
    return ids;
  }
  using Strings = std::vector<std::string>;
};

TEST_F(StoreKeepingTest, ANameMovesAndIsKept) {
  const Image one = Make("one", "one"), two = Make("two", "two");
  auto tagged = store_->Tag("one", "both:1");
  ASSERT_TRUE(tagged.has_value()) << Text(tagged.error());
  EXPECT_EQ(tagged->references, (Strings{"one:latest", "both:1"}));
  ASSERT_TRUE(store_->Tag("one", "both:1").has_value());  // again: nothing
  tagged = store_->Tag(two.id, "both:1");
  ASSERT_TRUE(tagged.has_value());
  EXPECT_EQ(tagged->references, (Strings{"two:latest", "both:1"}));
  Reopen();
  EXPECT_EQ(store_->Resolve("both:1")->id, two.id);
  EXPECT_EQ(store_->Resolve(one.id)->references, Strings{"one:latest"});
  EXPECT_EQ(store_->Tag("none", "x").error().code, Code::kNotFound);
  EXPECT_EQ(store_->Tag("one", "../x").error().code, Code::kInvalidArgument);
}

TEST_F(StoreKeepingTest, ANameThatMovedMeanwhileRemovesNothing) {
  const Image blocked = Make("one", "same"), used = Make("two", "same");
  auto removed = store_->Remove("same", blocked.id, {});
  ASSERT_FALSE(removed.has_value());
  EXPECT_EQ(removed.error().code, Code::kBadState);
  EXPECT_EQ(store_->Resolve("same")->id, used.id);
  EXPECT_TRUE(store_->Resolve(blocked.id).has_value());
  removed = store_->Remove(blocked.id, blocked.id, {});
  ASSERT_TRUE(removed.has_value()) << Text(removed.error());
  EXPECT_EQ(store_->List().size(), 1u);
}

TEST_F(StoreKeepingTest, NamesOfAnImageAreBounded) {
  const Image one = Make("one", "one:0"), two = Make("two", "two:0");
  store_.reset();
  const std::string index = state_ / "state/images/index.json";
  const auto text = ReadFile(index, kMaxDocumentBytes);
  ASSERT_TRUE(text.has_value());
  oci::Json json = *oci::ParseJson(*text);
  for (size_t i = 1; i < kMaxImageNames; ++i)
    json["images"][one.id]["references"].push_back("one:" + std::to_string(i));
  ASSERT_TRUE(WriteFileAtomic(index, oci::PrintJson(json), Durability::kMemory).has_value());
  Reopen();
  ASSERT_EQ(store_->Resolve(one.id)->references.size(), kMaxImageNames);
  const auto more = store_->Tag(one.id, "two:0");
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, Code::kLimit);
  EXPECT_EQ(store_->Resolve("two:0")->id, two.id);
  const auto imported = store_->Import(work_ / "one-layout", "two:0", nullptr);
  ASSERT_FALSE(imported.has_value());
  EXPECT_EQ(imported.error().code, Code::kLimit);
  EXPECT_EQ(store_->Resolve("two:0")->id, two.id);
  EXPECT_TRUE(store_->Tag(one.id, "one:5").has_value());  // it has that
  Reopen();
  EXPECT_EQ(store_->List().size(), 2u);
}

// What is written can be read again.
TEST_F(StoreKeepingTest, TheIndexIsBoundedAsItIsRead) {
  const Image image = Make("one", "one");
  store_.reset();
  const std::string index = state_ / "state/images/index.json";
  oci::Json json = *oci::ParseJson(*ReadFile(index, kMaxDocumentBytes));
  const oci::Json config = json["images"][image.id]["config"];
  size_t bytes = oci::PrintJson(json).size();
  // Only a manifest's digest is looked at: any bytes do.
  for (int i = 0; bytes + 260 < kMaxDocumentBytes; ++i) {
    const std::string manifest = "manifest " + std::to_string(i), id = DigestOf(manifest);
    ASSERT_TRUE(WriteFileAtomic(state_ / ("state/images/blobs/sha256/" + id.substr(7)), manifest,
                                Durability::kMemory)
                    .has_value());
    json["images"][id] = {{"references", oci::Json::array()}, {"config", config}};
    bytes += 200;
    for (size_t n = 0; n < kMaxImageNames && bytes + 260 < kMaxDocumentBytes; ++n) {
      std::string name = "a" + std::to_string(i) + "-" + std::to_string(n) + ":";
      name.resize(kMaxReferenceBytes, 'x');
      json["images"][id]["references"].push_back(name);
      bytes += name.size() + 3;
    }
  }
  ASSERT_TRUE(WriteFileAtomic(index, oci::PrintJson(json), Durability::kMemory).has_value());
  Reopen();
  Status tagged = OkStatus();
  for (int i = 0; i < 100 && tagged.has_value(); ++i) {
    std::string name = "more" + std::to_string(i) + ":";
    name.resize(kMaxReferenceBytes, 'x');
    const auto image_or = store_->Tag(image.id, name);
    if (!image_or) tagged = image_or.error();
  }
  ASSERT_FALSE(tagged.has_value());
  EXPECT_EQ(tagged.error().code, Code::kLimit);
  const auto names = store_->Resolve(image.id)->references;
  Reopen();
  EXPECT_EQ(store_->Resolve(image.id)->references, names);
  EXPECT_TRUE(Remove("one", {}).has_value());
}

TEST_F(StoreKeepingTest, LayersThatWereHeldGoWithTheHold) {
  const Image one = Make("one", "one"), two = Make("two", "two");
  auto hold = store_->Hold(one);
  ASSERT_TRUE(Remove("one", {}).has_value());
  EXPECT_TRUE(PathExists(LayerRoot(one.diff_ids[0])));
  hold.reset();
  EXPECT_FALSE(PathExists(LayerRoot(one.diff_ids[0])));
  EXPECT_TRUE(PathExists(LayerRoot(two.diff_ids[0])));
}

TEST_F(StoreKeepingTest, WithoutANameIsWhatPruneTakes) {
  const Image unnamed = Make("one", "same"), named = Make("two", "same");
  const auto before = Paths();
  Request request{.only = {unnamed.id, named.id}};
  request.mode = Request::Mode::kDryRun;
  Store::Pruned pruned = Prune(request);
  EXPECT_EQ(Ids(pruned.images), Strings{unnamed.id});
  EXPECT_EQ(pruned.layers, unnamed.diff_ids);
  EXPECT_EQ(pruned.freed_bytes, unnamed.size_bytes);
  EXPECT_EQ(Paths(), before);
  request.mode = Request::Mode::kRemove;
  request.in_use = {unnamed.id};
  pruned = Prune(request);
  EXPECT_TRUE(pruned.images.empty());
  EXPECT_EQ(Ids(pruned.kept), Strings{unnamed.id});
  request.in_use.clear();
  pruned = Prune(request);
  EXPECT_EQ(Ids(pruned.images), Strings{unnamed.id});
  EXPECT_EQ(pruned.layers, unnamed.diff_ids);
  EXPECT_EQ(pruned.freed_bytes, unnamed.size_bytes);
  EXPECT_EQ(Ids(store_->List()), Strings{named.id});
  EXPECT_FALSE(PathExists(LayerRoot(unnamed.diff_ids[0])));
  EXPECT_TRUE(PathExists(LayerRoot(named.diff_ids[0])));
  EXPECT_TRUE(Prune(request).images.empty());
}

TEST_F(StoreKeepingTest, AllIsWhatNoSandboxUsesAndMayGo) {
  const Image one = Make("one", "one"), two = Make("two", "two"), three = Make("three", "three");
  Request request{.which = Request::Which::kUnused, .in_use = {two.id}, .only = {one.id}};
  const Store::Pruned pruned = Prune(request);
  EXPECT_EQ(Ids(pruned.images), Strings{one.id});
  EXPECT_EQ(Ids(pruned.kept), Strings{two.id});
  EXPECT_TRUE(store_->Resolve(three.id).has_value());  // nobody said that it may go
}

TEST_F(StoreKeepingTest, PartsOfDownloadsGoWhenNobodyWritesThem) {
  const std::string downloads = state_ / "state/downloads";
  ASSERT_TRUE(MakeDirectories(downloads, 0700).has_value());
  for (const char* name : {"old.part", "new.part", "held.part", "old.other"})
    ASSERT_TRUE(WriteFileAtomic(downloads + "/" + name, std::string(9000, 'x'), Durability::kMemory)
                    .has_value());
  const timespec past{::time(nullptr) - static_cast<time_t>(kOldDownloadSeconds) - 1, 0};
  const timespec times[2] = {past, past};
  for (const char* name : {"old.part", "held.part", "old.other"})
    ASSERT_EQ(::utimensat(AT_FDCWD, (downloads + "/" + name).c_str(), times, 0), 0);
  const auto held = Open(downloads + "/held.part", O_RDWR);
  ASSERT_TRUE(held.has_value());
  ASSERT_EQ(::flock(held->get(), LOCK_EX), 0);
  EXPECT_EQ(Prune({.mode = Request::Mode::kDryRun}).files, Strings{"old.part"});
  EXPECT_TRUE(PathExists(downloads + "/old.part"));
  const Store::Pruned pruned = Prune({});
  EXPECT_EQ(pruned.files, Strings{"old.part"});
  EXPECT_GE(pruned.freed_bytes, 9000u);
  EXPECT_FALSE(PathExists(downloads + "/old.part"));
  for (const char* name : {"new.part", "held.part", "old.other"})
    EXPECT_TRUE(PathExists(downloads + "/" + name)) << name;
}

TEST_F(StoreKeepingTest, BytesOfLayersAreThoseOfTheirImages) {
  const Image one = Make("one", "one"), two = Make("two", "two");
  const auto bytes = store_->LayerBytes();
  ASSERT_EQ(bytes.size(), 2u);
  EXPECT_EQ(bytes.at(one.diff_ids[0]), one.size_bytes);
  ASSERT_TRUE(Remove("two", {}).has_value());
  EXPECT_EQ(store_->LayerBytes().size(), 1u);
}

TEST_F(StoreKeepingTest, AnArchiveIsLoadedFromADescriptor) {
  const std::string layout = work_ / "layout";
  WriteOneLayer(TarWriter().File("f", "x").Bytes(), Compression::kGzip, layout);
  ASSERT_EQ(Shell("tar -C " + layout + " -cf " + (work_ / "archive") + " ."), 0);
  const auto bytes = ReadFile(work_ / "archive", 1u << 20);
  ASSERT_TRUE(bytes.has_value());
  const auto fd = Open(state_.path(), O_TMPFILE | O_RDWR, 0600);
  ASSERT_TRUE(fd.has_value());
  ASSERT_TRUE(WriteAll(fd->get(), *bytes).has_value());
  const auto image = store_->Load(fd->get(), "loaded:1", nullptr);
  ASSERT_TRUE(image.has_value()) << Text(image.error());
  EXPECT_EQ(image->references, Strings{"loaded:1"});
  ASSERT_EQ(::ftruncate(fd->get(), 0), 0);
  const auto empty = store_->Load(fd->get(), "", nullptr);
  ASSERT_FALSE(empty.has_value());
  EXPECT_EQ(empty.error().what.find("/proc"), std::string::npos) << empty.error().what;
}

TEST_F(StoreKeepingTest, AnArchiveThatIsTooLargeIsNotLoaded) {
  const auto fd = Open(state_.path(), O_TMPFILE | O_RDWR, 0600);
  ASSERT_TRUE(fd.has_value());
  ASSERT_EQ(::ftruncate(fd->get(), static_cast<off_t>(kMaxArchiveBytes + 1)), 0);
  const auto image = store_->Load(fd->get(), "", nullptr);
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code, Code::kTooLarge);
}

}  // namespace
}  // namespace hutch::rootfs
