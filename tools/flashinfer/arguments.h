// The arguments of a dumped call, with the defaults of its signature where the call left them out,
// and the tensors that they name.

#ifndef TOOLS_FLASHINFER_ARGUMENTS_H_
#define TOOLS_FLASHINFER_ARGUMENTS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/corridor/kvcheck.h"
#include "tools/flashinfer/dump.h"

namespace kvcheck {

// The tensors of one file of a call, in memory that is mapped as long as this lives.
class MappedTensors {
 public:
  // Errors: kMissingData: missing, damaged, no safetensors file.
  explicit MappedTensors(const std::string& path);
  ~MappedTensors();
  // Errors: kMissingData: it has no such tensor, or one of a type that is not known.
  Array Get(const std::string& name);
  // Errors: kUnreadableFile when the file changed while it was read.
  void ThrowIfDamaged() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Arguments {
 public:
  // call must outlive it. position: names of what the call passed behind the parameters that its
  // signature names ("*args"), in order; empty where such arguments mean nothing that is known.
  explicit Arguments(const DumpedCall& call, const std::vector<std::string>& positional = {});

  // Passed, or the signature's default; None where it has none.
  const DumpedValue& Value(const std::string& name) const;
  bool IsNone(const std::string& name) const;
  // Errors of the following: kUnsupported for a value of another kind.
  bool Flag(const std::string& name) const;  // false of None
  std::optional<double> Number(const std::string& name) const;
  std::string Text(const std::string& name) const;  // "" of None
  std::optional<Array> Tensor(const std::string& name);
  // A tensor, of what Value() gave.
  Array TensorOf(const std::string& name, const DumpedValue& value);

  // Errors: kUnsupported for an argument that is not among `known`, and differs from its default:
  // it may change what the call computes.
  void RefuseUnknown(const std::vector<std::string>& known) const;
  void ThrowIfDamaged() const;

 private:
  const DumpedCall& call_;
  std::map<std::string, DumpedValue> values_;
  std::map<std::string, DumpedValue> defaults_;
  bool has_unnamed_ = false;
  std::unique_ptr<MappedTensors> inputs_;
};

}  // namespace kvcheck

#endif  // TOOLS_FLASHINFER_ARGUMENTS_H_
