// Names and numbers of system calls on this machine's architecture.
#pragma once

#include <linux/audit.h>

#include <cstdint>
#include <string>

namespace hutch::seccomp {

#if defined(__x86_64__)
inline constexpr uint32_t kNativeArch = AUDIT_ARCH_X86_64;
inline constexpr const char* kNativeArchGoName = "amd64";  // as in Docker's profile files
inline constexpr const char* kNativeArchOciName = "SCMP_ARCH_X86_64";
#elif defined(__aarch64__)
inline constexpr uint32_t kNativeArch = AUDIT_ARCH_AARCH64;
inline constexpr const char* kNativeArchGoName = "arm64";
inline constexpr const char* kNativeArchOciName = "SCMP_ARCH_AARCH64";
#else
#error "hutch knows x86_64 and aarch64"
#endif
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "filters load the low word of an argument");

// Numbers from here on are the x32 ABI on x86_64 (bit 30), and invalid elsewhere.
inline constexpr uint32_t kX32Bit = 0x40000000;

struct SyscallName {
  enum Kind {
    kHere,       // `number` is valid
    kElsewhere,  // a call of other architectures only
    kUnknown,    // no architecture we know has it
  };
  Kind kind = kUnknown;
  uint32_t number = 0;
};
SyscallName FindSyscall(const std::string& name);

}  // namespace hutch::seccomp
