// write_prompt_files FOLDER: prompts kept plain and in affine codes, and a whole prompt exported,
// for mlx-lm to load; beside them NAME.k and NAME.v, f32 rows (layers, kv_heads, tokens, dim) as a
// request reads them.

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "stored_prompts.h"
#include "tools/prefix_disk/export_prompt.h"

namespace kvcheck {
namespace {

void WriteRows(const std::string& path, const optimized::Rows& rows) {
  const auto write = [](const std::string& name, const std::vector<std::byte>& bytes) {
    std::ofstream(name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  };
  write(path + ".k", rows.k);
  write(path + ".v", rows.v);
}

void Write(const std::string& folder, const std::string& formats) {
  std::filesystem::create_directories(folder);
  const PrefixSetup setup = optimized::SetupOf("block=4 tokens=64 layers=3 hkv=2 dk=64" + formats);
  Store store(setup, folder);
  const Tokens prompt = {0, 1, 2, 3, 4, 5, 6, 7};
  store.Put(prompt);
  auto request = store.cache.Open(prompt, {}, true);
  WriteRows(folder + "/rows", optimized::ReadOf(&store.cache, setup, *request));
  store.cache.Close(std::move(request), false);
  ExportPrompt(&store.cache, setup, prompt, {}, folder + "/prompt.safetensors");
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "write_prompt_files FOLDER\n");
    return 2;
  }
  try {
    kvcheck::Write(std::string(argv[1]) + "/plain", "");
    kvcheck::Write(std::string(argv[1]) + "/coded", " k=affine:4:g32:f32");
  } catch (const std::exception& error) {
    fmt::print(stderr, "write_prompt_files: {}\n", error.what());
    return 1;
  }
  return 0;
}
