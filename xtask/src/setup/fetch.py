"""Download one pinned file through pip's configured index, or unpack an archive. Called by `cargo xtask setup`.

    fetch.py download <project> <version> <file name> <sha256> <folder>
    fetch.py unpack <archive> <folder> [--strip N] [--only PREFIX | --except PREFIX | --keep PREFIX ...]

`pip download` builds the metadata of a source distribution, which runs its setup.py and needs setuptools. We only
want the bytes, so we ask pip's own index reader for the file's address (with the machine's index, certificate and
proxy) and read it in pip's own session. That reader is not a stable interface: if a future pip changes it, plain
`pip download` is the second way. Either way the bytes count only if their hash is the pinned one.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def download_with_reader(project, file_name, path):
    from pip._internal.commands import create_command

    command = create_command("download")
    options, _ = command.parse_args(["--no-deps", project])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options=options, session=session)
        links = [found.link for found in finder.find_all_candidates(project) if found.link.filename == file_name]
        if not links:
            raise LookupError(f"the configured package index does not offer {file_name}")
        with session.get(links[0].url_without_fragment, stream=True, headers={"Accept-Encoding": "identity"}) as answer:
            answer.raise_for_status()
            with open(path, "wb") as file:
                for block in answer.iter_content(1 << 16):
                    file.write(block)


def download_with_pip(project, version, file_name, sha256, folder):
    requirements = os.path.join(folder, "requirements.txt")
    with open(requirements, "w") as file:
        file.write(f"{project}=={version} --hash=sha256:{sha256}\n")
    kind = "--only-binary" if file_name.endswith(".whl") else "--no-binary"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", kind, ":all:"]
    ended = subprocess.run(command + ["--require-hashes", "-r", requirements, "-d", folder])
    os.remove(requirements)
    if ended.returncode != 0:
        sys.exit(f"{file_name}: pip could not download it either; its reason stands above")


def download(project, version, file_name, sha256, folder):
    path = os.path.join(folder, file_name)
    try:
        download_with_reader(project, file_name, path)
    except Exception as error:
        print(f"reading the index ourselves failed ({type(error).__name__}: {error}); trying pip download")
        if os.path.exists(path):
            os.remove(path)
        download_with_pip(project, version, file_name, sha256, folder)
    found = sha256_of(path)
    if found != sha256:
        os.remove(path)
        sys.exit(f"{file_name}: the hash is {found}, pinned is {sha256}; the file was thrown away")


def wanted(name, strip, only, excepted, kept):
    """The path to unpack to, or None when this member is not wanted. What is kept wins over what is excepted."""
    parts = name.split("/")[strip:]
    if not parts or ".." in parts or name.startswith("/"):
        return None
    path = "/".join(parts)

    def is_in(prefixes):
        return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)

    if only and not is_in(only):
        return None
    return path if is_in(kept) or not is_in(excepted) else None


def unpack(archive, folder, options):
    strip, only, excepted, kept = 0, [], [], []
    for option, value in zip(options[::2], options[1::2]):
        if option == "--strip":
            strip = int(value)
        else:
            {"--only": only, "--except": excepted, "--keep": kept}[option].append(value)

    def place(name, source, mode):
        path = wanted(name, strip, only, excepted, kept)
        if path is None:
            return 0
        path = os.path.join(folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(source.read())
        os.chmod(path, mode)
        return 1

    files = 0
    if archive.endswith(".whl"):
        with zipfile.ZipFile(archive) as opened:
            for member in opened.infolist():
                if not member.is_dir():
                    executable = member.external_attr >> 16 & 0o100
                    files += place(member.filename, opened.open(member), 0o755 if executable else 0o644)
    else:
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isfile():
                    files += place(member.name, opened.extractfile(member), 0o755 if member.mode & 0o100 else 0o644)
    if files == 0:
        sys.exit(f"{archive}: nothing in it was wanted; has its layout changed?")
    print(f"{files} files")


if __name__ == "__main__":
    if sys.argv[1] == "download":
        download(*sys.argv[2:])
    else:
        unpack(sys.argv[2], sys.argv[3], sys.argv[4:])
