"""Does a killed training continue after a resume as if nothing had happened?"""
