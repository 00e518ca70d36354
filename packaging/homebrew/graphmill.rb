class Graphmill < Formula
  desc "Trains graph neural networks on graphs larger than memory"
  homepage "https://github.com/graphmill/graphmill"
  license any_of: ["MIT", "Apache-2.0"]
  head "https://github.com/graphmill/graphmill.git", branch: "main"

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args(path: "crates/graphmill")
    generate_completions_from_executable(bin/"graphmill", "completions")
    man1.mkpath
    system bin/"graphmill", "man", man1
  end

  test do
    system bin/"graphmill", "doctor"
    system bin/"graphmill", "train", "--epochs", "1", "--out", testpath/"run"
  end
end
