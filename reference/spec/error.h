// What the harness itself could not do, as a typed error: a malformed case, an unreadable file, a
// question that cannot be put. What an implementation under test did wrong is never an Error but a
// Verdict; a bug of ours is a failed KVCHECK_CHECK, which aborts in every build. One place,
// tools/kvcheck/main.cc, turns both into exit codes.

#ifndef REFERENCE_SPEC_ERROR_H_
#define REFERENCE_SPEC_ERROR_H_

#include <stdexcept>
#include <string>
#include <string_view>

namespace kvcheck {

enum class ErrorCode {
  kUsage,           // options that contradict each other or are incomplete
  kParse,           // a malformed case, plan, profile, format or mask text
  kIllegalCase,     // well formed, but asks for something that is not defined
  kUnreadableFile,  // missing, damaged, truncated or foreign file
  kMissingData,     // an input tensor that the case needs is absent or of another shape or type
  kUnsupported,     // defined, but not by this build or implementation
  kSelection,       // nothing selected, or a rule that matched nothing
};

std::string_view Name(ErrorCode code);

class Error : public std::runtime_error {
 public:
  // message: what is wrong and what to do; context: where (a file, a case, a column of a text).
  Error(ErrorCode code, std::string message, std::string context = "");

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& context() const { return context_; }

 private:
  ErrorCode code_;
  std::string message_;
  std::string context_;
};

// A text that does not parse. column is 1-based and points at the first offending character. Bytes
// outside printable ASCII appear in the message as \xNN.
[[noreturn]] void ThrowParseError(std::string_view text, size_t column, std::string_view reason);

// The exit status of a failed check (exit code 4 of the tool), unless the process sets another one
// before it starts threads.
inline constexpr int kInternalErrorExitCode = 4;
void SetInternalErrorExitCode(int exit_code);

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

}  // namespace kvcheck

#define KVCHECK_CHECK(condition, message)                                \
  do {                                                                   \
    if (!(condition)) {                                                  \
      ::kvcheck::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
    }                                                                    \
  } while (false)

#endif  // REFERENCE_SPEC_ERROR_H_
