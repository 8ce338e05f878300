#include "daemon/process_pipes.h"

#include <fcntl.h>
#include <unistd.h>

namespace hutch::daemon {
namespace {

Result<Pipe> MakePipeOf(uint32_t host_id_start, const oci::User& user) {
  ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  // Both ends share one inode.
  if (::fchown(pipe.write.get(), host_id_start + user.uid, host_id_start + user.gid) != 0)
    return SysError(errno, "chown of a pipe");
  return pipe;
}

Status SetNonBlocking(int fd) {
  if (::fcntl(fd, F_SETFL, O_NONBLOCK) != 0) return SysError(errno, "fcntl of a pipe");
  return OkStatus();
}

}  // namespace

Result<Pipe> MakeOutputPipe(uint32_t host_id_start, const oci::User& user) {
  ASSIGN_OR_RETURN(Pipe pipe, MakePipeOf(host_id_start, user));
  RETURN_IF_ERROR(SetNonBlocking(pipe.read.get()));
  return pipe;
}

Result<Pipe> MakeInputPipe(uint32_t host_id_start, const oci::User& user) {
  ASSIGN_OR_RETURN(Pipe pipe, MakePipeOf(host_id_start, user));
  RETURN_IF_ERROR(SetNonBlocking(pipe.write.get()));
  return pipe;
}

}  // namespace hutch::daemon
