#include "tools/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "base/file.h"
#include "base/text.h"
#include "tools/interrupts.h"
#include "tools/meter.h"

namespace hutch::tools {

Result<int> DownloadWhole(Context& context, const Request& request, const WholeFile& file) {
  const std::string& path = file.path;
  struct stat st = {};
  const bool in_place = ::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode);
  const std::string name = in_place ? path : path + ".hutch-" + RandomBase32(8);
  ASSIGN_OR_RETURN(const UniqueFd signals, CatchSignals(Catch::kEnds));
  ASSIGN_OR_RETURN(const UniqueFd fd,
                   Open(name, in_place ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL, 0666));
  Meter meter(file.stage, file.subject, 0, context.options);
  context.client.set_interrupt_fd(signals.get());
  Status written = context.client.Download(request, [&](std::string_view bytes) {
    meter.Add(bytes.size());
    return WriteAll(fd.get(), bytes);
  });
  if (written && !in_place && file.mode != 0 && ::fchmod(fd.get(), file.mode) != 0)
    written = SysError(errno, "mode of " + path);
  if (written && !in_place && ::rename(name.c_str(), path.c_str()) != 0)
    written = SysError(errno, "rename to " + path);
  if (written) return 0;
  if (!in_place) ::unlink(name.c_str());
  if (written.error().what == "interrupted") return 128 + NextSignal(signals.get());
  return written.error();
}

}  // namespace hutch::tools
