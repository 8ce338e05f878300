// The text of a devcontainer.json: whatever is accepted makes a request that is accepted, names
// nothing of the host, and says the same when it is read again as plain JSON.
#include "daemon/devcontainer.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "daemon/limits.h"
#include "oci/jsonc.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hutch;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const daemon::Config config = [] {
    daemon::Config c;
    c.template_relax = "on";
    return c;
  }();
  const auto plain = oci::JsoncToJson(text, daemon::kMaxDevcontainerBytes);
  if (plain.has_value() && plain->size() != text.size()) std::abort();
  const auto made = daemon::ParseDevcontainer(text, config);
  if (!made.has_value()) return 0;
  if (!plain.has_value() || made->awaited > made->stages.size()) std::abort();
  if (!daemon::ParseSandboxFields(made->settings, config).has_value()) std::abort();
  for (const daemon::TemplateStage& stage : made->stages)
    for (const daemon::TemplateCommand& command : stage.commands)
      if (command.args.empty() || command.args.front().empty()) std::abort();
  for (const daemon::WritableDirectory& directory : made->directories) {
    const auto normal = daemon::NormalDirectory(directory.path, "");
    if (!normal.has_value() || *normal != directory.path) std::abort();
  }
  const auto again = daemon::ParseDevcontainer(*plain, config);
  if (!again.has_value() || daemon::TemplateJson(*again) != daemon::TemplateJson(*made))
    std::abort();
  const auto resolved = daemon::ResolveRemoteEnv(made->remote_env, {"PATH=/bin", "HOME=/root"});
  if (resolved.has_value() && resolved->size() != made->remote_env.size()) std::abort();
  return 0;
}
