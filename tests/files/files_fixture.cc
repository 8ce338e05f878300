#include "tests/files/files_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

namespace hutch::files {
namespace {

UniqueFd FileWith(const std::string& bytes) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_TRUE(WriteAll(fd.get(), bytes).has_value());
  EXPECT_EQ(::lseek(fd.get(), 0, SEEK_SET), 0);
  return fd;
}

std::string BytesOf(int fd) {
  EXPECT_EQ(::lseek(fd, 0, SEEK_SET), 0);
  auto bytes = ReadAll(fd, 256u << 20);
  return bytes ? *bytes : "unreadable";
}

}  // namespace

std::vector<oci::Json> Answer::All(const std::string& kind) const {
  std::vector<oci::Json> found;
  for (const oci::Json& line : lines)
    if (line.contains(kind)) found.push_back(line[kind]);
  return found;
}

oci::Json Answer::One(const std::string& kind) const {
  const auto found = All(kind);
  EXPECT_EQ(found.size(), 1u) << kind << " of " << oci::Json(lines).dump().substr(0, 2000);
  return found.empty() ? oci::Json::object() : found[0];
}

std::string Answer::code() const {
  const auto found = All("error");
  EXPECT_EQ(exit_code, found.empty() ? 0 : 1);
  return found.empty() ? "" : found[0].value("code", "no code");
}

Answer Ask(const oci::Json& request, const std::string& input) {
  const UniqueFd in = FileWith(input), out = FileWith(""), reply_file = FileWith("");
  ReplyStream reply(reply_file.get());
  Io io{.in = in.get(), .out = out.get(), .reply = reply};
  Answer answer;
  answer.exit_code = RunRequest(oci::PrintJson(request), io);
  for (const std::string& line : Split(BytesOf(reply_file.get()), '\n')) {
    if (line.empty()) continue;
    auto json = oci::ParseJson(line, {.max_bytes = 64u << 20});
    EXPECT_TRUE(json.has_value()) << line.substr(0, 2000);
    if (json) answer.lines.push_back(*json);
  }
  answer.bytes = BytesOf(out.get());
  return answer;
}

void FilesTest::Put(const std::string& name, const std::string& bytes, mode_t mode) const {
  const UniqueFd fd(::open(At(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  ASSERT_TRUE(fd.valid()) << name;
  ASSERT_TRUE(WriteAll(fd.get(), bytes).has_value());
  ASSERT_EQ(::fchmod(fd.get(), mode), 0);
}

std::string FilesTest::Get(const std::string& name) const {
  auto bytes = ReadFile(At(name), 64u << 20);
  return bytes ? *bytes : "unreadable";
}

std::string FilesTest::Names(const std::string& name) const {
  auto names = ListDirectory(At(name));
  return names ? Join(*names, " ") : "unreadable";
}

Answer FilesTest::Op(const char* op, const std::string& name, oci::Json more,
                     const std::string& input) const {
  more["op"] = op;
  more["path"] = At(name);
  return Ask(more, input);
}

}  // namespace hutch::files
