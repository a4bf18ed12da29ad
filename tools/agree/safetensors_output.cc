#include "tools/agree/safetensors_output.h"

#include <nlohmann/json.hpp>

#include "tools/report/output_file.h"

namespace kvcheck {

void WriteSafetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                      std::span<const OutputTensor> tensors) {
  nlohmann::json header = {{"__metadata__", metadata}};
  size_t end = 0;
  for (const OutputTensor& tensor : tensors) {
    const size_t begin = end;
    end += tensor.bytes.size();
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length;
  AppendNumber(static_cast<uint64_t>(text.size()), &length);
  OutputFile file(path);
  file.Write(length);
  file.Write(text);
  for (const OutputTensor& tensor : tensors) file.Write(tensor.bytes);
  file.Commit();
}

}  // namespace kvcheck
