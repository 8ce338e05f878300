#include "files/operations.h"

#include "files/errors.h"
#include "files/limits.h"

namespace hutch::files {
namespace {

struct OperationRow {
  std::string_view name;
  Operation run;
};
constexpr OperationRow kOperations[] = {
    {"stat", Stat},
    {"read", Read},
    {"write", Write},
    {"list", List},
    {"glob", Glob},
    {"grep", Grep},
    {"delete", Delete},
    {"mkdir", MakeDirectory},
    {"move", Move},
    {"copy", Copy},
    {"edit", Edit},
    {"pack", Pack},
    {"unpack", Unpack},
    {"watch", Watch},
    {"batch_read", BatchRead},
    {"batch_write", BatchWrite},
};

Status Dispatch(std::string_view text, Io& io) {
  std::string sent;
  if (text == "-") {
    ASSIGN_OR_RETURN(sent, ReadToEnd(io.in, kMaxRequestBytes));
    text = sent;
  }
  ASSIGN_OR_RETURN(const oci::Json request,
                   oci::ParseJson(text, {.max_bytes = kMaxRequestBytes, .max_depth = 8}));
  std::string name;
  RETURN_IF_ERROR(
      oci::ObjectReader(request, "").String("op", &name).Done(oci::ObjectReader::Unknown::kIgnore));
  for (const OperationRow& row : kOperations)
    if (row.name == name) return row.run(request, io);
  return Invalid("no operation \"" + name + "\"", "op");
}

}  // namespace

oci::ObjectReader Members(const oci::Json& request) {
  oci::ObjectReader reader(request, "");
  reader.Member("op");
  return reader;
}

int RunRequest(std::string_view text, Io& io) {
  const Status status = Dispatch(text, io);
  if (status) return 0;
  io.reply.Fail(status.error());
  return 1;
}

}  // namespace hutch::files
