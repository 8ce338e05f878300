#include "runtime/container_sync.h"

#include <cstdlib>

#include "base/fd_socket.h"
#include "base/text.h"

namespace hutch::runtime {
namespace {

constexpr size_t kMaxNoteBytes = 8192;
constexpr size_t kFailureParts = 4;  // code, errno, field, text

Error ParseFailure(std::string_view text) {
  std::vector<std::string> parts = Split(text, '\0');
  Error error{.code = Code::kInternal, .what = "a failure that nobody can read"};
  if (parts.size() != kFailureParts) return error;
  error.code = CodeOfName(parts[0]).value_or(Code::kInternal);
  error.sys = std::atoi(parts[1].c_str());
  error.field = parts[2];
  error.what = parts[3];
  return error;
}

}  // namespace

Status SendNote(int socket_fd, Note note, std::string_view text, const std::vector<int>& fds) {
  const char kind = static_cast<char>(note);
  const std::string_view parts[] = {{&kind, 1}, text};
  return SendMessage(socket_fd, parts, fds);
}

Result<ReceivedNote> ReceiveNote(int socket_fd) {
  ASSIGN_OR_RETURN(Message message, ReceiveMessage(socket_fd, kMaxNoteBytes));
  ReceivedNote received;
  if (message.bytes.empty()) return received;
  received.note = static_cast<Note>(message.bytes[0]);
  received.text = message.bytes.substr(1);
  received.fds = std::move(message.fds);
  if (received.note == Note::kFailed) return ParseFailure(received.text);
  return received;
}

Result<ReceivedNote> ExpectNote(int socket_fd, Note wanted) {
  ASSIGN_OR_RETURN(ReceivedNote received, ReceiveNote(socket_fd));
  if (received.note == wanted) return received;
  if (received.note == Note::kClosed)
    return Error{.code = Code::kKernel, .what = "the container's first process ended early"};
  return Error{.code = Code::kInternal, .what = "an unexpected note"};
}

void SendFailure(int socket_fd, const Error& error) {
  std::string what = error.what;
  if (*error.step != '\0') what = std::string(error.step) + ": " + what;
  for (char& c : what)
    if (c == '\0') c = ' ';
  if (what.size() > kMaxNoteBytes / 2) what.resize(kMaxNoteBytes / 2);
  const std::string field = error.field.substr(0, kMaxNoteBytes / 4);
  const std::string text = std::string(CodeName(error.code)) + '\0' + std::to_string(error.sys) +
                           '\0' + field + '\0' + what;
  IgnoreError(SendNote(socket_fd, Note::kFailed, text), "then nobody is there to hear it");
}

}  // namespace hutch::runtime
